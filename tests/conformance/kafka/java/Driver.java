import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * Has Kafka's own Java clients and tools do what a test asks for: one JSON request a line on standard input, one JSON
 * answer a line on standard output. Clients live from one request to the next under a number; nothing is asserted here,
 * tests judge the facts. Compiled against each version under test, so only what all of them have is used.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What a request asks for. */
    @FunctionalInterface
    interface Operation {
        Object run(JsonNode arguments) throws Exception;
    }

    private static final Map<String, Map<String, Operation>> MODULES = Map.of(
        "Producers", Producers.OPERATIONS,
        "Consumers", Consumers.OPERATIONS,
        "Admins", Admins.OPERATIONS,
        "Tools", Tools.OPERATIONS);

    private static final Map<Integer, AutoCloseable> CLIENTS = new HashMap<>();

    public static void main(String[] none) throws Exception {
        // What clients and tools print must not get between the answers.
        PrintStream answers = System.out;
        Tools.relay();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.write(JSON.writeValueAsBytes(answer(JSON.readTree(line))));
            answers.write('\n');
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> answer(JsonNode request) {
        try {
            String name = request.get("name").asText();
            JsonNode arguments = request.get("arguments");
            Object facts = "close".equals(name)
                ? close(arguments)
                : MODULES.get(request.get("module").asText()).get(name).run(arguments);
            return Collections.singletonMap("facts", facts);
        } catch (Exception | Error error) {
            return Map.of("error", describeError(error));
        }
    }

    /** An error as the client's user sees it: futures wrap what came from another thread. */
    static Map<String, Object> describeError(Throwable thrown) {
        Throwable error = thrown;
        while (error.getCause() != null
                && (error instanceof ExecutionException || error.getClass() == KafkaException.class)) {
            error = error.getCause();
        }
        String name = error.getClass().getSimpleName();
        return Map.of("name", name, "code", name, "message", String.valueOf(error.getMessage()));
    }

    // --- clients that stay

    static int keep(AutoCloseable client) {
        int number = CLIENTS.size() + 1;
        CLIENTS.put(number, client);
        return number;
    }

    static AutoCloseable client(int number) {
        return CLIENTS.get(number);
    }

    private static Object close(JsonNode arguments) throws Exception {
        // The number stays taken: the next client must not get it.
        AutoCloseable client = CLIENTS.put(arguments.get("client").asInt(), () -> { });
        client.close();
        return null;
    }

    // --- arguments

    static Properties settings(JsonNode arguments) {
        Properties settings = new Properties();
        arguments.get("settings").fields().forEachRemaining(field -> settings.put(field.getKey(), field.getValue().asText()));
        return settings;
    }

    static List<String> texts(JsonNode list) {
        List<String> texts = new ArrayList<>();
        list.forEach(one -> texts.add(one.asText()));
        return texts;
    }

    static String textOrNull(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText();
    }

    /** A list of topic and partition. */
    static List<TopicPartition> places(JsonNode list) {
        List<TopicPartition> places = new ArrayList<>();
        list.forEach(one -> places.add(place(one)));
        return places;
    }

    static TopicPartition place(JsonNode pair) {
        return new TopicPartition(pair.get(0).asText(), pair.get(1).asInt());
    }

    /** Topic and partition as the test writes them. */
    static List<Object> shown(TopicPartition place) {
        return List.of(place.topic(), place.partition());
    }
}
