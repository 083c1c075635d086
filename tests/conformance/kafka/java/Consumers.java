import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/** What consumers do, alone and in groups. */
final class Consumers {
    private static final Duration A_MOMENT = Duration.ofMillis(100);
    private static final long PATIENCE_MS = 120_000;

    static final Map<String, Driver.Operation> OPERATIONS = Map.ofEntries(
        Map.entry("open", Consumers::open),
        Map.entry("subscribe", Consumers::subscribe),
        Map.entry("subscribePattern", Consumers::subscribePattern),
        Map.entry("assign", Consumers::assign),
        Map.entry("seek", Consumers::seek),
        Map.entry("pause", Consumers::pause),
        Map.entry("resume", Consumers::resume),
        Map.entry("poll", Consumers::poll),
        Map.entry("pollUntilShared", Consumers::pollUntilShared),
        Map.entry("commit", Consumers::commit),
        Map.entry("committed", Consumers::committed),
        Map.entry("position", Consumers::position),
        Map.entry("bounds", Consumers::bounds),
        Map.entry("offsetsForTimes", Consumers::offsetsForTimes),
        Map.entry("partitions", Consumers::partitions),
        Map.entry("rebalances", Consumers::rebalances),
        Map.entry("member", Consumers::member));

    /** The rebalance events of each consumer. */
    private static final Map<Integer, Listener> LISTENERS = new HashMap<>();

    private static final class Listener implements ConsumerRebalanceListener {
        final List<Object> events = new ArrayList<>();

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            note("revoked", places);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            note("assigned", places);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            note("lost", places);
        }

        private void note(String what, Collection<TopicPartition> places) {
            events.add(List.of(what, numbers(places)));
        }
    }

    @SuppressWarnings("unchecked")
    static KafkaConsumer<String, String> consumer(int number) {
        return (KafkaConsumer<String, String>) Driver.client(number);
    }

    private static KafkaConsumer<String, String> consumer(JsonNode arguments) {
        return consumer(arguments.get("client").asInt());
    }

    private static List<Integer> numbers(Collection<TopicPartition> places) {
        return places.stream().map(TopicPartition::partition).sorted().toList();
    }

    private static Object open(JsonNode arguments) {
        return Driver.keep(new KafkaConsumer<>(Driver.settings(arguments), new StringDeserializer(), new StringDeserializer()));
    }

    private static Object subscribe(JsonNode arguments) {
        Listener listener = new Listener();
        LISTENERS.put(arguments.get("client").asInt(), listener);
        consumer(arguments).subscribe(Driver.texts(arguments.get("topics")), listener);
        return null;
    }

    /** By a regular expression that the node evaluates; clients before 4.0 do not know the class. */
    private static Object subscribePattern(JsonNode arguments) throws Exception {
        Listener listener = new Listener();
        LISTENERS.put(arguments.get("client").asInt(), listener);
        Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
        Object pattern = kind.getConstructor(String.class).newInstance(arguments.get("pattern").asText());
        KafkaConsumer.class.getMethod("subscribe", kind, ConsumerRebalanceListener.class)
            .invoke(consumer(arguments), pattern, listener);
        return null;
    }

    private static Object assign(JsonNode arguments) {
        consumer(arguments).assign(Driver.places(arguments.get("places")));
        return null;
    }

    /** To an offset, or where there is none to the beginning or the end. */
    private static Object seek(JsonNode arguments) {
        KafkaConsumer<String, String> consumer = consumer(arguments);
        TopicPartition place = Driver.place(arguments.get("place"));
        String to = arguments.get("to").asText();
        switch (to) {
            case "beginning" -> consumer.seekToBeginning(List.of(place));
            case "end" -> consumer.seekToEnd(List.of(place));
            default -> consumer.seek(place, Long.parseLong(to));
        }
        return consumer.position(place);
    }

    private static Object pause(JsonNode arguments) {
        consumer(arguments).pause(Driver.places(arguments.get("places")));
        return numbers(consumer(arguments).paused());
    }

    private static Object resume(JsonNode arguments) {
        consumer(arguments).resume(Driver.places(arguments.get("places")));
        return numbers(consumer(arguments).paused());
    }

    /** Reads with one or more consumers in turn until so many records came, or the time is over. */
    private static Object poll(JsonNode arguments) {
        List<KafkaConsumer<String, String>> consumers = new ArrayList<>();
        arguments.get("clients").forEach(number -> consumers.add(consumer(number.asInt())));
        int count = arguments.get("count").asInt();
        long deadline = System.currentTimeMillis() + arguments.get("atMostMs").asLong();
        List<Object> result = new ArrayList<>();
        while (result.size() < count && System.currentTimeMillis() < deadline) {
            for (KafkaConsumer<String, String> consumer : consumers) {
                consumer.poll(A_MOMENT).forEach(record -> result.add(shown(record)));
            }
        }
        return result;
    }

    /** Polls consumers in turn until each has partitions and all are given out; who has which. */
    private static Object pollUntilShared(JsonNode arguments) {
        int count = arguments.get("partitions").asInt();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        Map<String, Object> shares = new LinkedHashMap<>();
        while (System.currentTimeMillis() < deadline) {
            shares.clear();
            Set<TopicPartition> given = new HashSet<>();
            boolean isShared = true;
            for (JsonNode number : arguments.get("clients")) {
                KafkaConsumer<String, String> consumer = consumer(number.asInt());
                consumer.poll(A_MOMENT);
                isShared &= !consumer.assignment().isEmpty() && Collections.disjoint(given, consumer.assignment());
                given.addAll(consumer.assignment());
                shares.put(number.asText(), numbers(consumer.assignment()));
            }
            if (isShared && given.size() == count) {
                return shares;
            }
        }
        throw new IllegalStateException("not shared in time: " + shares);
    }

    private static Map<String, Object> shown(ConsumerRecord<String, String> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>(List.of(header.key()));
            pair.add(header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8));
            headers.add(pair);
        }
        Map<String, Object> result = new HashMap<>();
        result.put("partition", record.partition());
        result.put("offset", record.offset());
        result.put("timeMs", record.timestamp());
        result.put("timeType", record.timestampType().name());
        result.put("key", record.key());
        result.put("value", record.value());
        result.put("headers", headers);
        return result;
    }

    /** Commits offsets that are given, else what was read; waiting or not. */
    private static Object commit(JsonNode arguments) throws Exception {
        KafkaConsumer<String, String> consumer = consumer(arguments);
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode one : arguments.get("offsets")) {
            offsets.put(Driver.place(one), new OffsetAndMetadata(one.get(2).asLong(), one.get(3).asText()));
        }
        if (!arguments.get("isAsync").asBoolean()) {
            consumer.commitSync(offsets);
            return null;
        }
        CompletableFuture<Object> done = new CompletableFuture<>();
        consumer.commitAsync(offsets, (what, error) -> done.complete(error == null ? numbers(what.keySet()) : error.toString()));
        for (int i = 0; i < 1200 && !done.isDone(); i++) {
            consumer.poll(A_MOMENT);
        }
        return done.get(1, TimeUnit.SECONDS);
    }

    private static Object committed(JsonNode arguments) {
        List<Object> result = new ArrayList<>();
        consumer(arguments).committed(new HashSet<>(Driver.places(arguments.get("places")))).entrySet().stream()
            .filter(entry -> entry.getValue() != null)
            .sorted(Comparator.comparing(entry -> entry.getKey().partition()))
            .forEach(entry -> result.add(List.of(entry.getKey().partition(), entry.getValue().offset(), entry.getValue().metadata())));
        return result;
    }

    private static Object position(JsonNode arguments) {
        return consumer(arguments).position(Driver.place(arguments.get("place")));
    }

    private static Object bounds(JsonNode arguments) {
        TopicPartition place = Driver.place(arguments.get("place"));
        KafkaConsumer<String, String> consumer = consumer(arguments);
        return List.of(consumer.beginningOffsets(List.of(place)).get(place), consumer.endOffsets(List.of(place)).get(place));
    }

    private static Object offsetsForTimes(JsonNode arguments) {
        TopicPartition place = Driver.place(arguments.get("place"));
        List<Object> result = new ArrayList<>();
        for (JsonNode time : arguments.get("timesMs")) {
            OffsetAndTimestamp found = consumer(arguments).offsetsForTimes(Map.of(place, time.asLong())).get(place);
            result.add(found == null ? null : List.of(found.offset(), found.timestamp()));
        }
        return result;
    }

    private static Object partitions(JsonNode arguments) {
        return consumer(arguments).partitionsFor(arguments.get("topic").asText()).size();
    }

    private static Object rebalances(JsonNode arguments) {
        return LISTENERS.get(arguments.get("client").asInt()).events;
    }

    private static Object member(JsonNode arguments) {
        KafkaConsumer<String, String> consumer = consumer(arguments);
        return Map.of("id", consumer.groupMetadata().memberId(), "generation", consumer.groupMetadata().generationId());
    }
}
