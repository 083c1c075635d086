import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
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

    private static Object run(JsonNode arguments) throws Exception {
        String[] words = Driver.texts(arguments.get("arguments")).toArray(String[]::new);
        InputStream in = System.in;
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream told = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        List<Integer> codes = new ArrayList<>(1);
        Exit.setExitProcedure((code, message) -> {
            codes.add(code);
            throw new Ended();
        });
        try {
            System.setIn(new ByteArrayInputStream(arguments.get("text").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(told, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            call(arguments.get("main").asText(), words);
            // Some catch everything, our way out of them too, and end once more: the first word counts.
            return Map.of("code", codes.isEmpty() ? 0 : codes.get(0), "out", told.toString(StandardCharsets.UTF_8), "err", complained.toString(StandardCharsets.UTF_8));
        } finally {
            System.setIn(in);
            System.setOut(out);
            System.setErr(err);
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
