import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools by their main classes. They run in this virtual machine, one after the other: to start one
 * for each would take longer than all of them.
 */
final class Tools {
    static final Map<String, Driver.Operation> OPERATIONS = Map.of("run", Tools::run);

    /** A tool wants to end its process. */
    private static final class Ended extends Error {
        Ended() {
            super("exit", null, false, false);
        }
    }

    /** A stream that stays while what is behind it changes: tools in Scala keep the first one that they see. */
    private static final class Relay extends OutputStream {
        private volatile OutputStream target;

        Relay(OutputStream target) {
            this.target = target;
        }

        PrintStream stream() {
            return new PrintStream(this, true, StandardCharsets.UTF_8);
        }

        @Override
        public void write(int octet) throws IOException {
            target.write(octet);
        }

        @Override
        public void write(byte[] octets, int from, int count) throws IOException {
            target.write(octets, from, count);
        }

        @Override
        public void flush() throws IOException {
            target.flush();
        }
    }

    private static final PrintStream LOG = System.err;
    private static final Relay OUT = new Relay(LOG);
    private static final Relay ERR = new Relay(LOG);

    /** From now on all that is printed goes to the log, unless a tool prints it. */
    static void relay() {
        System.setOut(OUT.stream());
        System.setErr(ERR.stream());
    }

    private static Object run(JsonNode arguments) throws Exception {
        String[] words = Driver.texts(arguments.get("arguments")).toArray(String[]::new);
        InputStream in = System.in;
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        List<Integer> codes = new ArrayList<>(1);
        Exit.setExitProcedure((code, message) -> {
            codes.add(code);
            throw new Ended();
        });
        try {
            System.setIn(new ByteArrayInputStream(arguments.get("text").asText().getBytes(StandardCharsets.UTF_8)));
            OUT.target = output;
            ERR.target = errors;
            call(arguments.get("main").asText(), words);
            // Some catch everything, our way out of them too, and end once more: the first word counts.
            return Map.of("code", codes.isEmpty() ? 0 : codes.get(0), "out", output.toString(StandardCharsets.UTF_8), "err", errors.toString(StandardCharsets.UTF_8));
        } finally {
            System.setIn(in);
            OUT.target = LOG;
            ERR.target = LOG;
            Exit.resetExitProcedure();
        }
    }

    private static void call(String main, String[] words) throws Exception {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) words);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                throw thrown;
            }
        }
    }
}
