import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.microsoft.azure.eventhubs.BatchOptions;
import com.microsoft.azure.eventhubs.ConnectionStringBuilder;
import com.microsoft.azure.eventhubs.EventData;
import com.microsoft.azure.eventhubs.EventDataBatch;
import com.microsoft.azure.eventhubs.EventHubClient;
import com.microsoft.azure.eventhubs.EventPosition;
import com.microsoft.azure.eventhubs.PartitionReceiver;
import com.microsoft.azure.eventhubs.PartitionSender;
import com.microsoft.azure.eventprocessorhost.CloseReason;
import com.microsoft.azure.eventprocessorhost.EventProcessorHost;
import com.microsoft.azure.eventprocessorhost.EventProcessorOptions;
import com.microsoft.azure.eventprocessorhost.IEventProcessor;
import com.microsoft.azure.eventprocessorhost.InMemoryCheckpointManager;
import com.microsoft.azure.eventprocessorhost.InMemoryLeaseManager;
import com.microsoft.azure.eventprocessorhost.PartitionContext;
import com.microsoft.azure.eventprocessorhost.PartitionManagerOptions;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Runs what a test asks of azure-eventhubs 2.3 and its EventProcessorHost: one JSON request a line on standard input, one
 * JSON answer a line on standard output. Nothing is asserted here.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ScheduledExecutorService THREADS = Executors.newScheduledThreadPool(4);
    private static final long PATIENCE_MS = 120_000;

    @FunctionalInterface
    interface Work {
        Object run(EventHubClient client) throws Exception;
    }

    @FunctionalInterface
    interface Operation {
        Object run(JsonNode given) throws Exception;
    }

    private static final Map<String, Operation> OPERATIONS = Map.of(
        "send", given -> using(given, client -> send(client, given)),
        "send_batch", given -> using(given, client -> sendBatch(client, given)),
        "receive", given -> using(given, client -> receive(client, given)),
        "contend", given -> using(given, first -> using(given, second -> contend(first, second, given))),
        "describe", given -> using(given, client -> describe(client)),
        "process", Driver::process,
        "process_blobs", Driver::processWithBlobs);

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        // What clients print must not get between the answers.
        System.setOut(System.err);
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
            Object facts = OPERATIONS.get(request.get("name").asText()).run(request.get("arguments"));
            return Collections.singletonMap("facts", facts);
        } catch (Exception error) {
            String name = error.getClass().getSimpleName();
            return Map.of("error", Map.of("name", name, "code", name, "message", String.valueOf(error.getMessage())));
        }
    }

    private static String connection(JsonNode given) throws Exception {
        JsonNode place = given.get("place");
        return new ConnectionStringBuilder()
            .setEndpoint(new URI("sb://" + place.get("host").asText()))
            .setEventHubName(place.get("hub").asText())
            .setSasKeyName(place.get("name").asText())
            .setSasKey(place.get("key").asText())
            // Refusals that may pass are tried again for so long.
            .setOperationTimeout(Duration.ofSeconds(120))
            .toString();
    }

    private static Object using(JsonNode given, Work work) throws Exception {
        EventHubClient client = EventHubClient.createSync(connection(given), THREADS);
        try {
            return work.run(client);
        } finally {
            client.closeSync();
        }
    }

    // --- sending

    private static EventData event(String text) {
        EventData event = EventData.create(text.getBytes(StandardCharsets.UTF_8));
        event.getProperties().put("text", "größe");
        return event;
    }

    private static Object send(EventHubClient client, JsonNode given) throws Exception {
        for (JsonNode text : given.get("texts")) {
            if (given.hasNonNull("partition")) {
                PartitionSender sender = client.createPartitionSenderSync(given.get("partition").asText());
                sender.sendSync(event(text.asText()));
                sender.closeSync();
            } else if (given.hasNonNull("key")) {
                client.sendSync(event(text.asText()), given.get("key").asText());
            } else {
                client.sendSync(event(text.asText()));
            }
        }
        return null;
    }

    private static Object sendBatch(EventHubClient client, JsonNode given) throws Exception {
        PartitionSender sender = client.createPartitionSenderSync(given.get("partition").asText());
        EventDataBatch batch = sender.createBatch(new BatchOptions());
        for (JsonNode text : given.get("texts")) {
            batch.tryAdd(event(text.asText()));
        }
        sender.sendSync(batch);
        sender.closeSync();
        return null;
    }

    // --- receiving

    private static List<Map<String, Object>> read(PartitionReceiver receiver, int count) throws Exception {
        List<Map<String, Object>> events = new ArrayList<>();
        receiver.setReceiveTimeout(Duration.ofSeconds(5));
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (events.size() < count && System.currentTimeMillis() < deadline) {
            Iterable<EventData> batch = receiver.receiveSync(count - events.size());
            if (batch != null) {
                batch.forEach(one -> events.add(shown(one)));
            }
        }
        return events;
    }

    private static Map<String, Object> shown(EventData one) {
        Map<String, Object> facts = new HashMap<>();
        facts.put("body", new String(one.getBytes(), StandardCharsets.UTF_8));
        facts.put("sequence", one.getSystemProperties().getSequenceNumber());
        facts.put("offset", one.getSystemProperties().getOffset());
        facts.put("enqueuedMs", one.getSystemProperties().getEnqueuedTime().toEpochMilli());
        facts.put("key", one.getSystemProperties().getPartitionKey());
        facts.put("properties", one.getProperties());
        return facts;
    }

    private static Object receive(EventHubClient client, JsonNode given) throws Exception {
        EventPosition start = given.hasNonNull("after")
            ? EventPosition.fromOffset(given.get("after").asText()) : EventPosition.fromStartOfStream();
        PartitionReceiver receiver = client.createReceiverSync("$Default", given.get("partition").asText(), start);
        try {
            return read(receiver, given.get("count").asInt());
        } finally {
            receiver.closeSync();
        }
    }

    /** A second reader with a higher epoch takes the partition; how the first one ends. */
    private static Object contend(EventHubClient first, EventHubClient second, JsonNode given) throws Exception {
        String partition = given.get("partition").asText();
        EventPosition start = EventPosition.fromStartOfStream();
        PartitionReceiver owner = first.createEpochReceiverSync("$Default", partition, start, 1);
        read(owner, 1);
        PartitionReceiver taker = second.createEpochReceiverSync("$Default", partition, start, 2);
        boolean newcomerReads = read(taker, 1).size() == 1;
        String end = "";
        try {
            read(owner, 500);
        } catch (Exception error) {
            end = error.getClass().getSimpleName();
        }
        return Map.of("newcomerReads", newcomerReads, "owner", end);
    }

    // --- asking and processing

    private static Object describe(EventHubClient client) throws Exception {
        var hub = client.getRuntimeInformation().get(120, TimeUnit.SECONDS);
        return Map.of(
            "name", hub.getPath(), "partitions", hub.getPartitionIds(), "createdMs", hub.getCreatedAt().toEpochMilli());
    }

    /** A host reads events from the beginning and checkpoints each; where partition 0 is in the end. */
    private static Object process(JsonNode given) throws Exception {
        InMemoryCheckpointManager checkpoints = new InMemoryCheckpointManager();
        InMemoryLeaseManager leases = new InMemoryLeaseManager();
        EventProcessorHost host = new EventProcessorHost(
            "host", given.get("place").get("hub").asText(), "$Default", connection(given), checkpoints, leases);
        initialize(host, checkpoints, leases);
        List<String> processed = collect(host, given.get("count").asInt());
        var checkpoint = checkpoints.getCheckpoint("0").get(120, TimeUnit.SECONDS);
        host.unregisterEventProcessor().get(120, TimeUnit.SECONDS);
        return Map.of("bodies", processed, "checkpoint", checkpoint == null ? -1 : checkpoint.getSequenceNumber());
    }

    /** A host with its own managers, which keep leases and checkpoints in blobs. */
    private static Object processWithBlobs(JsonNode given) throws Exception {
        EventProcessorHost host = new EventProcessorHost(
            "host", given.get("place").get("hub").asText(), "$Default", connection(given),
            given.get("storage").asText(), given.get("container").asText());
        List<String> processed = collect(host, given.get("count").asInt());
        host.unregisterEventProcessor().get(120, TimeUnit.SECONDS);
        return Map.of("bodies", processed);
    }

    /** What a host reads from its checkpoints, else from the beginning; each event is checkpointed. */
    private static List<String> collect(EventProcessorHost host, int count) throws Exception {
        host.setPartitionManagerOptions(quick());
        BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
        EventProcessorOptions options = new EventProcessorOptions();
        // A host that ends waits for the receive that is under way.
        options.setReceiveTimeOut(Duration.ofSeconds(2));
        options.setInitialPositionProvider(partition -> EventPosition.fromStartOfStream());
        host.registerEventProcessorFactory(context -> new Processor(bodies), options).get(120, TimeUnit.SECONDS);
        List<String> processed = new ArrayList<>();
        while (processed.size() < count) {
            String body = bodies.poll(120, TimeUnit.SECONDS);
            if (body == null) {
                break;
            }
            processed.add(body);
        }
        return processed;
    }

    /** Managers in memory want what the host tells its own, in a type that only its package sees. */
    private static void initialize(EventProcessorHost host, Object... managers) throws Exception {
        var getter = EventProcessorHost.class.getDeclaredMethod("getHostContext");
        getter.setAccessible(true);
        Object context = getter.invoke(host);
        for (Object manager : managers) {
            manager.getClass().getMethod("initialize", context.getClass()).invoke(manager, context);
        }
    }

    private static PartitionManagerOptions quick() {
        PartitionManagerOptions options = new PartitionManagerOptions();
        options.setStartupScanDelayInSeconds(1);
        options.setFastScanIntervalInSeconds(1);
        options.setSlowScanIntervalInSeconds(2);
        return options;
    }

    private static final class Processor implements IEventProcessor {
        private final BlockingQueue<String> bodies;

        Processor(BlockingQueue<String> bodies) {
            this.bodies = bodies;
        }

        @Override
        public void onOpen(PartitionContext context) {
        }

        @Override
        public void onClose(PartitionContext context, CloseReason reason) {
        }

        @Override
        public void onEvents(PartitionContext context, Iterable<EventData> events) throws Exception {
            for (EventData one : events) {
                context.checkpoint(one).get(120, TimeUnit.SECONDS);
                bodies.add(new String(one.getBytes(), StandardCharsets.UTF_8));
            }
        }

        @Override
        public void onError(PartitionContext context, Throwable error) {
            System.err.println(error);
        }
    }
}
