import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringSerializer;

/** What producers do, transactions among it. */
final class Producers {
    private static final long PATIENCE_SECONDS = 120;

    static final Map<String, Driver.Operation> OPERATIONS = Map.of(
        "open", Producers::open,
        "send", Producers::send,
        "initTransactions", arguments -> step(arguments, KafkaProducer::initTransactions),
        "begin", arguments -> step(arguments, KafkaProducer::beginTransaction),
        "commit", arguments -> step(arguments, KafkaProducer::commitTransaction),
        "abort", arguments -> step(arguments, KafkaProducer::abortTransaction),
        "sendOffsets", Producers::sendOffsets,
        "crash", Producers::crash);

    @FunctionalInterface
    private interface Step {
        void run(KafkaProducer<String, String> producer) throws Exception;
    }

    private static Object open(JsonNode arguments) {
        return Driver.keep(new KafkaProducer<>(Driver.settings(arguments), new StringSerializer(), new StringSerializer()));
    }

    @SuppressWarnings("unchecked")
    private static KafkaProducer<String, String> producer(JsonNode arguments) {
        return (KafkaProducer<String, String>) Driver.client(arguments.get("client").asInt());
    }

    private static Object step(JsonNode arguments, Step step) throws Exception {
        step.run(producer(arguments));
        return null;
    }

    /** Sends everything before it waits for the first; where each record is now. */
    private static Object send(JsonNode arguments) throws Exception {
        KafkaProducer<String, String> producer = producer(arguments);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode one : arguments.get("records")) {
            sent.add(producer.send(record(arguments.get("topic").asText(), one)));
        }
        List<Object> results = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = future.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            results.add(Map.of("partition", metadata.partition(), "offset", metadata.offset(), "timeMs", metadata.timestamp()));
        }
        return results;
    }

    private static ProducerRecord<String, String> record(String topic, JsonNode one) {
        List<Header> headers = new ArrayList<>();
        if (one.has("headers")) {
            one.get("headers").forEach(pair -> headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1)))));
        }
        Integer partition = one.has("partition") ? one.get("partition").asInt() : null;
        Long time = one.has("timeMs") ? one.get("timeMs").asLong() : null;
        return new ProducerRecord<>(topic, partition, time, Driver.textOrNull(one.get("key")),
            Driver.textOrNull(one.get("value")), headers);
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : node.asText().getBytes(StandardCharsets.UTF_8);
    }

    /** Puts where a consumer stands into the transaction. */
    private static Object sendOffsets(JsonNode arguments) {
        KafkaConsumer<String, String> consumer = Consumers.consumer(arguments.get("consumer").asInt());
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition place : consumer.assignment()) {
            offsets.put(place, new OffsetAndMetadata(consumer.position(place)));
        }
        producer(arguments).sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        return null;
    }

    /** Ends a producer in the middle of what it does. */
    private static Object crash(JsonNode arguments) {
        producer(arguments).close(Duration.ZERO);
        return null;
    }
}
