import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventDataBatch;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClient;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClientBuilder;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerAsyncClient;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.LastEnqueuedEventProperties;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import com.azure.messaging.eventhubs.models.SendOptions;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import reactor.core.Disposable;
import reactor.core.Exceptions;

/**
 * Has the Azure SDK for Java do what a test asks for: one JSON request a line on standard input, one JSON answer a line
 * on standard output. Nothing is asserted here, tests judge the facts.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    // The SDK tries three times, up to a minute each: a test that fails should do so sooner.
    private static final AmqpRetryOptions QUICK = new AmqpRetryOptions()
        .setMaxRetries(1).setDelay(Duration.ofMillis(50)).setTryTimeout(Duration.ofSeconds(60));
    private static final Duration WAIT = Duration.ofSeconds(120);

    @FunctionalInterface
    private interface Operation {
        Object run(Place place, JsonNode arguments) throws Exception;
    }

    private static final Map<String, Operation> OPERATIONS = Map.of(
        "sendBatch", Driver::sendBatch,
        "sendSingles", Driver::sendSingles,
        "sendBuffered", Driver::sendBuffered,
        "receive", Driver::receive,
        "contend", Driver::contend,
        "describe", Driver::describe,
        "process", Driver::process,
        "processWithBlobs", (place, arguments) -> BlobCheckpoints.process(place.connection(), place.hub(), arguments),
        "roundTripWithIdentity", (place, arguments) -> Identities.roundTrip(arguments));

    /** Where a hub is. */
    private record Place(String connection, String hub, boolean isWebSocket) {
        EventHubClientBuilder builder() {
            return new EventHubClientBuilder().connectionString(connection, hub).retryOptions(QUICK).transportType(transport());
        }

        AmqpTransportType transport() {
            return isWebSocket ? AmqpTransportType.AMQP_WEB_SOCKETS : AmqpTransportType.AMQP;
        }
    }

    public static void main(String[] none) throws Exception {
        // The SDK's own lines must not get between the answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.write(JSON.writeValueAsBytes(answer(JSON.readTree(line))));
            answers.write('\n');
            answers.flush();
        }
        System.exit(0);
    }

    private static Map<String, Object> answer(JsonNode request) {
        try {
            JsonNode arguments = request.get("arguments");
            JsonNode where = arguments.get("place");
            Place place = where == null ? null
                : new Place(where.get("connection").asText(), where.get("hub").asText(), where.get("webSocket").asBoolean());
            Object facts = OPERATIONS.get(request.get("name").asText()).run(place, arguments);
            return Collections.singletonMap("facts", facts);
        } catch (Exception error) {
            return Map.of("error", describeError(error));
        }
    }

    /** An error as the SDK's user sees it: the condition if it is one of AMQP's, else the class. */
    private static Map<String, Object> describeError(Throwable thrown) {
        // Blocking calls wrap what came from another thread.
        Throwable error = Exceptions.unwrap(thrown);
        while (!(error instanceof AmqpException) && error.getCause() != null) {
            error = error.getCause();
        }
        String code = error instanceof AmqpException amqp && amqp.getErrorCondition() != null
            ? amqp.getErrorCondition().name() : error.getClass().getSimpleName();
        return Map.of("name", error.getClass().getSimpleName(), "code", code, "message", String.valueOf(error.getMessage()));
    }

    // --- sending

    private static Object sendBatch(Place place, JsonNode arguments) {
        try (EventHubProducerClient producer = place.builder().buildProducerClient()) {
            EventDataBatch batch = producer.createBatch(new CreateBatchOptions()
                .setPartitionId(text(arguments, "partition")).setPartitionKey(text(arguments, "key")));
            int fitted = 0;
            for (JsonNode body : arguments.get("bodies")) {
                fitted += batch.tryAdd(anEvent(body.asText())) ? 1 : 0;
            }
            producer.send(batch);
            return Map.of("fitted", fitted, "limitBytes", batch.getMaxSizeInBytes());
        }
    }

    private static EventData anEvent(String body) {
        EventData event = new EventData(body).setMessageId("id").setContentType("text/plain");
        event.getProperties().putAll(Map.of("text", "größe", "number", 7, "yes", true));
        return event;
    }

    private static Object sendSingles(Place place, JsonNode arguments) {
        SendOptions target = new SendOptions().setPartitionId(text(arguments, "partition"));
        try (EventHubProducerClient producer = place.builder().buildProducerClient()) {
            for (JsonNode body : arguments.get("bodies")) {
                producer.send(List.of(new EventData(body.asText())), target);
            }
        }
        return null;
    }

    private static Object sendBuffered(Place place, JsonNode arguments) throws Exception {
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        List<Long> sent = Collections.synchronizedList(new ArrayList<>());
        try (EventHubBufferedProducerClient producer = new EventHubBufferedProducerClientBuilder()
                .connectionString(place.connection(), place.hub()).retryOptions(QUICK).transportType(place.transport())
                .maxWaitTime(Duration.ofMillis(100))
                .onSendBatchSucceeded(batch -> batch.getEvents().forEach(event -> sent.add(1L)))
                .onSendBatchFailed(failure -> errors.add(String.valueOf(failure.getThrowable().getMessage())))
                .buildClient()) {
            for (int number = 0; number < arguments.get("count").asInt(); number++) {
                producer.enqueueEvent(new EventData(String.valueOf(number)));
            }
            producer.flush();
            // On a busy machine the SDK reports some batches after its flush, and fails them if it is closed before.
            Instant deadline = Instant.now().plus(WAIT);
            while (sent.size() < arguments.get("count").asInt() && errors.isEmpty() && Instant.now().isBefore(deadline)) {
                Thread.sleep(10);
            }
        }
        return Map.of("sent", sent.size(), "errors", errors);
    }

    private static String text(JsonNode arguments, String name) {
        return arguments.hasNonNull(name) ? arguments.get(name).asText() : null;
    }

    // --- receiving

    private static Object receive(Place place, JsonNode arguments) {
        int count = arguments.get("count").asInt();
        List<Map<String, Object>> facts = new ArrayList<>();
        ReceiveOptions options = new ReceiveOptions().setTrackLastEnqueuedEventProperties(true);
        try (EventHubConsumerClient consumer = aConsumer(place, arguments).buildConsumerClient()) {
            // A call gives what is there once some of it is: the next goes on after it.
            EventPosition start = asPosition(arguments.path("start"));
            Instant deadline = Instant.now().plus(WAIT);
            while (facts.size() < count && Instant.now().isBefore(deadline)) {
                for (PartitionEvent event : consumer.receiveFromPartition(
                        text(arguments, "partition"), count - facts.size(), start, Duration.ofSeconds(1), options)) {
                    facts.add(fact(event));
                    start = EventPosition.fromSequenceNumber(event.getData().getSequenceNumber());
                }
            }
        }
        return facts;
    }

    private static EventHubClientBuilder aConsumer(Place place, JsonNode arguments) {
        String group = text(arguments, "group");
        EventHubClientBuilder builder = place.builder().consumerGroup(group == null ? "$Default" : group);
        return arguments.hasNonNull("prefetch") ? builder.prefetchCount(arguments.get("prefetch").asInt()) : builder;
    }

    private static EventPosition asPosition(JsonNode start) {
        if (start.has("sequence")) {
            return EventPosition.fromSequenceNumber(start.get("sequence").asLong(), start.path("inclusive").asBoolean());
        } else if (start.has("offset")) {
            return EventPosition.fromOffsetString(start.get("offset").asText());
        } else if (start.has("timeMs")) {
            return EventPosition.fromEnqueuedTime(Instant.ofEpochMilli(start.get("timeMs").asLong()));
        }
        return EventPosition.earliest();
    }

    private static Map<String, Object> fact(PartitionEvent event) {
        EventData data = event.getData();
        LastEnqueuedEventProperties last = event.getLastEnqueuedEventProperties();
        Map<String, Object> fact = new LinkedHashMap<>();
        fact.put("body", data.getBodyAsString());
        fact.put("partition", event.getPartitionContext().getPartitionId());
        fact.put("sequence", data.getSequenceNumber());
        fact.put("offset", data.getOffsetString());
        fact.put("enqueuedMs", data.getEnqueuedTime().toEpochMilli());
        fact.put("key", data.getPartitionKey());
        fact.put("properties", data.getProperties());
        fact.put("messageId", data.getMessageId());
        fact.put("contentType", data.getContentType());
        fact.put("lastSequence", last == null ? null : last.getSequenceNumber());
        return fact;
    }

    /** A reader with an owner level holds partition 0 while another comes with a higher one: how the first ends. */
    private static Object contend(Place place, JsonNode arguments) throws Exception {
        try (EventHubConsumerAsyncClient first = aConsumer(place, arguments).buildAsyncConsumerClient();
                EventHubConsumerAsyncClient second = aConsumer(place, arguments).buildAsyncConsumerClient()) {
            CountDownLatch held = new CountDownLatch(1);
            CountDownLatch taken = new CountDownLatch(1);
            CompletableFuture<Throwable> lost = new CompletableFuture<>();
            Disposable owner = read(first, 1L, held, lost);
            held.await(WAIT.toSeconds(), TimeUnit.SECONDS);
            Disposable newcomer = read(second, 2L, taken, new CompletableFuture<>());
            boolean isTaken = taken.await(WAIT.toSeconds(), TimeUnit.SECONDS);
            Throwable how = lost.get(WAIT.toSeconds(), TimeUnit.SECONDS);
            owner.dispose();
            newcomer.dispose();
            return Map.of("owner", describeError(how).get("code"), "newcomerReads", isTaken);
        }
    }

    private static Disposable read(
            EventHubConsumerAsyncClient consumer, long ownerLevel, CountDownLatch first, CompletableFuture<Throwable> lost) {
        ReceiveOptions options = new ReceiveOptions().setOwnerLevel(ownerLevel);
        return consumer.receiveFromPartition("0", EventPosition.earliest(), options)
            .subscribe(event -> first.countDown(), lost::complete);
    }

    // --- asking

    private static Object describe(Place place, JsonNode arguments) {
        try (EventHubProducerClient producer = place.builder().buildProducerClient()) {
            var hub = producer.getEventHubProperties();
            List<Map<String, Object>> partitions = new ArrayList<>();
            for (String id : hub.getPartitionIds()) {
                var partition = producer.getPartitionProperties(id);
                partitions.add(Map.of(
                    "id", partition.getId(),
                    "isEmpty", partition.isEmpty(),
                    "beginning", partition.getBeginningSequenceNumber(),
                    "last", partition.getLastEnqueuedSequenceNumber(),
                    "lastOffset", partition.getLastEnqueuedOffset()));
            }
            return Map.of("name", hub.getName(), "createdMs", hub.getCreatedAt().toEpochMilli(), "partitions", partitions);
        }
    }

    // --- processing

    /** Two processors in turn: the first reads and checkpoints some events, the second goes on from its checkpoints. */
    private static Object process(Place place, JsonNode arguments) throws Exception {
        MemoryCheckpoints store = new MemoryCheckpoints();
        List<String> first = processed(place, store, arguments.get("count").asInt());
        // Before the next events are sent: a stopped processor may still read and checkpoint one of them.
        MemoryCheckpoints next = store.handedOver();
        sendSingles(place, arguments);
        List<String> second = processed(place, next, arguments.get("bodies").size());
        return Map.of("first", first, "second", second);
    }

    private static List<String> processed(Place place, MemoryCheckpoints store, int count) throws Exception {
        List<String> bodies = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch done = new CountDownLatch(count);
        EventProcessorClient processor = new EventProcessorClientBuilder()
            .connectionString(place.connection(), place.hub()).transportType(place.transport()).retryOptions(QUICK)
            .consumerGroup("$Default").checkpointStore(store)
            .loadBalancingUpdateInterval(Duration.ofSeconds(1)).partitionOwnershipExpirationInterval(Duration.ofMinutes(1))
            .initialPartitionEventPosition(partition -> EventPosition.earliest())
            .processEvent(context -> {
                bodies.add(context.getEventData().getBodyAsString());
                context.updateCheckpoint();
                done.countDown();
            })
            .processError(failure -> System.err.println(failure.getThrowable()))
            .buildEventProcessorClient();
        processor.start();
        done.await(WAIT.toSeconds(), TimeUnit.SECONDS);
        processor.stop();
        return List.copyOf(bodies);
    }
}
