import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Has Java clients since Kafka 1.0 do what a test asks for, by the operations that the programs in Go and Rust have:
 * one JSON request a line on standard input, one JSON answer a line on standard output. Only what 1.0 has is used.
 */
public class Older {
    private static final ObjectMapper JSON = new ObjectMapper();
    static final long PATIENCE_SECONDS = 120;
    private static final long A_MOMENT_MS = 100;

    @FunctionalInterface
    interface Operation {
        Object run(JsonNode given) throws Exception;
    }

    @FunctionalInterface
    interface Task {
        Object run(AdminClient admin, JsonNode given) throws Exception;
    }

    static final Map<String, Operation> OPERATIONS = new HashMap<>();

    static {
        OPERATIONS.put("produce", Older::produce);
        OPERATIONS.put("read", Older::read);
        OPERATIONS.put("consume", Older::consume);
        OPERATIONS.put("share", Older::share);
        OPERATIONS.put("transact", Older::transact);
        OPERATIONS.put("fence", Older::fence);
        OPERATIONS.put("bounds", Older::bounds);
        OPERATIONS.put("offsetAt", Older::offsetAt);
        OPERATIONS.put("groupOffset", Older::groupOffset);
        OPERATIONS.put("createTopic", with(Older::createTopic));
        OPERATIONS.put("growTopic", with(Older::growTopic));
        OPERATIONS.put("deleteTopic", with(Older::deleteTopic));
        OPERATIONS.put("topics", with(Older::topics));
        OPERATIONS.put("configs", with(Older::configs));
        OPERATIONS.put("alterConfigs", with(Older::alterConfigs));
        OPERATIONS.put("cluster", with(Older::cluster));
        OPERATIONS.put("logDirs", with(Older::logDirs));
        OPERATIONS.put("acls", with((admin, given) -> now(admin.describeAcls(AclBindingFilter.ANY).values()).size()));
    }

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
        } catch (Exception | Error error) {
            return Map.of("error", describe(error));
        }
    }

    /** An error as the client's user sees it, with the code of the protocol that it stands for. */
    private static Map<String, Object> describe(Throwable thrown) {
        Throwable error = cause(thrown);
        return Map.of("name", error.getClass().getSimpleName(), "code", code(error), "message", String.valueOf(error.getMessage()));
    }

    /** Futures and clients wrap what came from another thread. */
    private static Throwable cause(Throwable thrown) {
        Throwable error = thrown;
        while (error.getCause() != null
                && (error instanceof ExecutionException || error.getClass() == KafkaException.class)) {
            error = error.getCause();
        }
        return error;
    }

    private static String code(Throwable error) {
        return String.valueOf(Errors.forException(cause(error)).code());
    }

    // --- arguments

    static Properties settings(JsonNode given, String... more) {
        Properties settings = new Properties();
        given.get("place").fields().forEachRemaining(field -> settings.put(field.getKey(), field.getValue().asText()));
        for (int index = 0; index < more.length; index += 2) {
            settings.put(more[index], more[index + 1]);
        }
        return settings;
    }

    static String text(JsonNode given, String name) {
        return given.hasNonNull(name) ? given.get(name).asText() : null;
    }

    static TopicPartition spot(JsonNode given) {
        return new TopicPartition(text(given, "topic"), given.path("partition").asInt());
    }

    static <T> T now(KafkaFuture<T> future) throws Exception {
        return future.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    // --- producers

    private static KafkaProducer<String, String> producer(Properties settings) {
        settings.putIfAbsent("acks", "all");
        settings.put("max.request.size", "5000000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static Object produce(JsonNode given) throws Exception {
        Properties settings = settings(given);
        if (given.hasNonNull("acks")) {
            settings.put("acks", given.get("acks").asText());
        }
        if (given.hasNonNull("codec")) {
            settings.put("compression.type", text(given, "codec"));
        }
        // The default has changed between versions.
        settings.put("enable.idempotence", given.path("idempotent").asBoolean());
        try (KafkaProducer<String, String> producer = producer(settings)) {
            return sent(producer, text(given, "topic"), given.get("records"));
        }
    }

    private static List<Long> sent(KafkaProducer<String, String> producer, String topic, JsonNode records) throws Exception {
        List<Future<RecordMetadata>> pending = new ArrayList<>();
        for (JsonNode one : records) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode pair : one.path("headers")) {
                headers.add(new RecordHeader(pair.get(0).asText(), pair.get(1).asText().getBytes(StandardCharsets.UTF_8)));
            }
            Long time = one.hasNonNull("timeMs") ? one.get("timeMs").asLong() : null;
            pending.add(producer.send(new ProducerRecord<>(
                topic, one.path("partition").asInt(), time, text(one, "key"), text(one, "value"), headers)));
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : pending) {
            offsets.add(one.get(PATIENCE_SECONDS, TimeUnit.SECONDS).offset());
        }
        return offsets;
    }

    // --- transactions

    private static KafkaProducer<String, String> transactional(JsonNode given) {
        KafkaProducer<String, String> producer = producer(settings(given, "transactional.id", text(given, "id")));
        producer.initTransactions();
        return producer;
    }

    private static Object transact(JsonNode given) throws Exception {
        try (KafkaProducer<String, String> producer = transactional(given)) {
            for (JsonNode step : given.get("steps")) {
                producer.beginTransaction();
                for (JsonNode value : step.get("values")) {
                    producer.send(new ProducerRecord<>(text(step, "topic"), 0, null, value.asText())).get();
                }
                if (step.hasNonNull("group")) {
                    TopicPartition spot = new TopicPartition(text(step, "topic"), 0);
                    OffsetAndMetadata offset = new OffsetAndMetadata(step.get("offset").asLong());
                    producer.sendOffsetsToTransaction(Map.of(spot, offset), text(step, "group"));
                }
                if (step.get("isKept").asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        return null;
    }

    /** A second producer of the same id begins before the first one commits: the error code of the first. */
    private static Object fence(JsonNode given) throws Exception {
        try (KafkaProducer<String, String> zombie = transactional(given)) {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(text(given, "topic"), 0, null, "zombie")).get();
            transact(given);
            zombie.commitTransaction();
            return "";
        } catch (KafkaException error) {
            return code(error);
        }
    }

    // --- consumers

    private static KafkaConsumer<String, String> consumer(JsonNode given, String... more) {
        Properties settings = settings(given, more);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static List<Object> polled(KafkaConsumer<String, String> consumer, int count) {
        long deadline = System.currentTimeMillis() + PATIENCE_SECONDS * 1000;
        List<Object> records = new ArrayList<>();
        while (records.size() < count && System.currentTimeMillis() < deadline) {
            consumer.poll(A_MOMENT_MS).forEach(record -> records.add(shown(record)));
        }
        return records;
    }

    private static Map<String, Object> shown(ConsumerRecord<String, String> record) {
        List<Object> headers = new ArrayList<>();
        record.headers().forEach(one -> headers.add(List.of(one.key(), new String(one.value(), StandardCharsets.UTF_8))));
        Map<String, Object> facts = new HashMap<>();
        facts.put("partition", record.partition());
        facts.put("offset", record.offset());
        facts.put("timeMs", record.timestamp());
        facts.put("key", record.key());
        facts.put("value", record.value());
        facts.put("headers", headers);
        return facts;
    }

    private static Object read(JsonNode given) {
        String level = given.path("committed").asBoolean() ? "read_committed" : "read_uncommitted";
        try (KafkaConsumer<String, String> consumer = consumer(given, "isolation.level", level)) {
            TopicPartition spot = spot(given);
            consumer.assign(List.of(spot));
            long start = given.get("start").asLong();
            if (start >= 0) {
                consumer.seek(spot, start);
            } else {
                consumer.seekToBeginning(List.of(spot));
            }
            return polled(consumer, given.get("count").asInt());
        }
    }

    private static KafkaConsumer<String, String> member(JsonNode given) {
        KafkaConsumer<String, String> consumer = consumer(
            given, "group.id", text(given, "group"), "heartbeat.interval.ms", "200", "session.timeout.ms", "60000");
        consumer.subscribe(List.of(text(given, "topic")));
        return consumer;
    }

    private static Object consume(JsonNode given) {
        try (KafkaConsumer<String, String> consumer = member(given)) {
            List<Object> records = polled(consumer, given.get("count").asInt());
            consumer.commitSync();
            return records;
        }
    }

    /** Members join one after the other until each has partitions and none is left over: who has which. */
    private static Object share(JsonNode given) throws Exception {
        List<Member> members = new ArrayList<>();
        try {
            for (int index = 0; index < given.get("members").asInt(); index++) {
                members.add(new Member(member(given)));
                members.get(index).start();
                awaitShared(members, given.get("count").asInt());
            }
            return members.stream().map(one -> one.held).toList();
        } finally {
            for (Member one : members) {
                one.isOver = true;
                one.join();
            }
        }
    }

    /** A member in a thread of its own: its poll waits until all members have joined. */
    private static final class Member extends Thread {
        private final KafkaConsumer<String, String> consumer;
        volatile Collection<Integer> held = List.of();
        volatile boolean isOver;

        Member(KafkaConsumer<String, String> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void run() {
            try (consumer) {
                while (!isOver) {
                    consumer.poll(A_MOMENT_MS);
                    Collection<Integer> mine = new TreeSet<>();
                    consumer.assignment().forEach(one -> mine.add(one.partition()));
                    held = mine;
                }
            }
        }
    }

    private static void awaitShared(List<Member> members, int count) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_SECONDS * 1000;
        while (System.currentTimeMillis() < deadline) {
            int total = members.stream().mapToInt(one -> one.held.size()).sum();
            if (total == count && members.stream().noneMatch(one -> one.held.isEmpty())) {
                return;
            }
            Thread.sleep(A_MOMENT_MS);
        }
        throw new IllegalStateException("not shared in time");
    }

    private static Object bounds(JsonNode given) {
        try (KafkaConsumer<String, String> consumer = consumer(given)) {
            TopicPartition spot = spot(given);
            return List.of(consumer.beginningOffsets(List.of(spot)).get(spot), consumer.endOffsets(List.of(spot)).get(spot));
        }
    }

    private static Object offsetAt(JsonNode given) {
        try (KafkaConsumer<String, String> consumer = consumer(given)) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(spot(given), given.get("timeMs").asLong())).get(spot(given));
            return found == null ? -1 : found.offset();
        }
    }

    private static Object groupOffset(JsonNode given) {
        try (KafkaConsumer<String, String> consumer = consumer(given, "group.id", text(given, "group"))) {
            OffsetAndMetadata kept = consumer.committed(spot(given));
            return kept == null ? -1 : kept.offset();
        }
    }

    // --- administration

    static Operation with(Task task) {
        return given -> {
            try (AdminClient admin = AdminClient.create(settings(given))) {
                return task.run(admin, given);
            }
        };
    }

    private static Object createTopic(AdminClient admin, JsonNode given) throws Exception {
        Map<String, String> configs = new HashMap<>();
        given.path("configs").fields().forEachRemaining(field -> configs.put(field.getKey(), field.getValue().asText()));
        NewTopic topic = new NewTopic(text(given, "topic"), given.get("partitions").asInt(), (short) 1);
        return now(admin.createTopics(List.of(topic.configs(configs))).all());
    }

    private static Object growTopic(AdminClient admin, JsonNode given) throws Exception {
        NewPartitions wanted = NewPartitions.increaseTo(given.get("partitions").asInt());
        return now(admin.createPartitions(Map.of(text(given, "topic"), wanted)).all());
    }

    private static Object deleteTopic(AdminClient admin, JsonNode given) throws Exception {
        return now(admin.deleteTopics(List.of(text(given, "topic"))).all());
    }

    private static Object topics(AdminClient admin, JsonNode given) throws Exception {
        Map<String, Object> counts = new TreeMap<>();
        for (TopicDescription one : now(admin.describeTopics(now(admin.listTopics().names())).all()).values()) {
            counts.put(one.name(), one.partitions().size());
        }
        return counts;
    }

    private static ConfigResource resource(JsonNode given) {
        return new ConfigResource(ConfigResource.Type.TOPIC, text(given, "topic"));
    }

    private static Object configs(AdminClient admin, JsonNode given) throws Exception {
        Map<String, Object> entries = new TreeMap<>();
        now(admin.describeConfigs(List.of(resource(given))).all()).get(resource(given)).entries()
            .forEach(one -> entries.put(one.name(), String.valueOf(one.value())));
        return entries;
    }

    private static Object alterConfigs(AdminClient admin, JsonNode given) throws Exception {
        List<ConfigEntry> entries = new ArrayList<>();
        given.get("configs").fields().forEachRemaining(field -> entries.add(new ConfigEntry(field.getKey(), field.getValue().asText())));
        return now(admin.alterConfigs(Map.of(resource(given), new Config(entries))).all());
    }

    private static Object cluster(AdminClient admin, JsonNode given) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        return Map.of("controller", now(cluster.controller()).id(), "nodes", now(cluster.nodes()).size());
    }

    private static Object logDirs(AdminClient admin, JsonNode given) throws Exception {
        Map<String, Long> sizes = new TreeMap<>();
        now(admin.describeLogDirs(List.of(0)).all()).values().forEach(folders -> folders.values().forEach(folder ->
            folder.replicaInfos.forEach((spot, replica) -> sizes.put(spot.toString(), replica.size))));
        return sizes;
    }
}
