import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;

/** What administrators do. Each request has a client of its own: they are short-lived in life, too. */
final class Admins {
    private static final long PATIENCE_SECONDS = 120;

    static final Map<String, Driver.Operation> OPERATIONS = Map.ofEntries(
        Map.entry("createTopic", with(Admins::createTopic)),
        Map.entry("deleteTopic", with(Admins::deleteTopic)),
        Map.entry("listTopics", with((admin, arguments) -> new TreeSet<>(now(admin.listTopics().names())))),
        Map.entry("describeTopic", with(Admins::describeTopic)),
        Map.entry("createPartitions", with(Admins::createPartitions)),
        Map.entry("describeConfigs", with(Admins::describeConfigs)),
        Map.entry("alterConfigs", with(Admins::alterConfigs)),
        Map.entry("listGroups", with(Admins::listGroups)),
        Map.entry("describeGroup", with(Admins::describeGroup)),
        Map.entry("deleteGroup", with(Admins::deleteGroup)),
        Map.entry("listGroupOffsets", with(Admins::listGroupOffsets)),
        Map.entry("alterGroupOffsets", with(Admins::alterGroupOffsets)),
        Map.entry("deleteGroupOffsets", with(Admins::deleteGroupOffsets)),
        Map.entry("listOffsets", with(Admins::listOffsets)),
        Map.entry("deleteRecords", with(Admins::deleteRecords)),
        Map.entry("describeCluster", with(Admins::describeCluster)),
        Map.entry("describeLogDirs", with(Admins::describeLogDirs)),
        Map.entry("describeProducers", with(Admins::describeProducers)),
        Map.entry("transactions", with(Admins::transactions)),
        Map.entry("describeAcls", with((admin, arguments) -> now(admin.describeAcls(AclBindingFilter.ANY).values()).size())));

    @FunctionalInterface
    private interface Task {
        Object run(Admin admin, JsonNode arguments) throws Exception;
    }

    private static Driver.Operation with(Task task) {
        return arguments -> {
            try (Admin admin = Admin.create(Driver.settings(arguments))) {
                return task.run(admin, arguments);
            }
        };
    }

    private static <T> T now(KafkaFuture<T> future) throws Exception {
        return future.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    private static String topic(JsonNode arguments) {
        return arguments.get("topic").asText();
    }

    // --- topics

    private static Object createTopic(Admin admin, JsonNode arguments) throws Exception {
        Map<String, String> configs = new HashMap<>();
        arguments.get("configs").fields().forEachRemaining(field -> configs.put(field.getKey(), field.getValue().asText()));
        NewTopic wanted = new NewTopic(topic(arguments), Optional.of(arguments.get("partitions").asInt()), Optional.empty());
        var made = admin.createTopics(List.of(wanted.configs(configs)));
        now(made.all());
        return Map.of("partitions", now(made.numPartitions(topic(arguments))), "id", now(made.topicId(topic(arguments))).toString());
    }

    private static Object deleteTopic(Admin admin, JsonNode arguments) throws Exception {
        return now(admin.deleteTopics(List.of(topic(arguments))).all());
    }

    private static Object describeTopic(Admin admin, JsonNode arguments) throws Exception {
        TopicDescription result = now(admin.describeTopics(List.of(topic(arguments))).allTopicNames()).get(topic(arguments));
        return Map.of("id", result.topicId().toString(), "partitions", result.partitions().size(),
            "leader", result.partitions().get(0).leader().id(), "replicas", result.partitions().get(0).replicas().size());
    }

    private static Object createPartitions(Admin admin, JsonNode arguments) throws Exception {
        NewPartitions wanted = NewPartitions.increaseTo(arguments.get("partitions").asInt());
        return now(admin.createPartitions(Map.of(topic(arguments), wanted)).all());
    }

    // --- configurations

    private static ConfigResource resource(JsonNode arguments) {
        return arguments.has("topic")
            ? new ConfigResource(ConfigResource.Type.TOPIC, topic(arguments))
            : new ConfigResource(ConfigResource.Type.BROKER, arguments.get("broker").asText());
    }

    private static Object describeConfigs(Admin admin, JsonNode arguments) throws Exception {
        Config result = now(admin.describeConfigs(List.of(resource(arguments))).all()).get(resource(arguments));
        Map<String, Object> entries = new TreeMap<>();
        for (ConfigEntry entry : result.entries()) {
            entries.put(entry.name(), List.of(String.valueOf(entry.value()), entry.source().name(), entry.type().name()));
        }
        return entries;
    }

    /** A null value goes back to the default. */
    private static Object alterConfigs(Admin admin, JsonNode arguments) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        arguments.get("configs").fields().forEachRemaining(field -> changes.add(new AlterConfigOp(
            new ConfigEntry(field.getKey(), Driver.textOrNull(field.getValue())),
            field.getValue().isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        return now(admin.incrementalAlterConfigs(Map.of(resource(arguments), changes)).all());
    }

    // --- groups

    private static Object listGroups(Admin admin, JsonNode arguments) throws Exception {
        Map<String, Object> result = new TreeMap<>();
        for (ConsumerGroupListing group : now(admin.listConsumerGroups().all())) {
            result.put(group.groupId(), String.valueOf(group.state().map(Object::toString).orElse("?")));
        }
        return result;
    }

    private static Object describeGroup(Admin admin, JsonNode arguments) throws Exception {
        String group = arguments.get("group").asText();
        ConsumerGroupDescription result = now(admin.describeConsumerGroups(List.of(group)).all()).get(group);
        List<Object> members = new ArrayList<>();
        result.members().forEach(member -> members.add(Map.of(
            "client", member.clientId(),
            "instance", member.groupInstanceId().orElse(""),
            "partitions", member.assignment().topicPartitions().size())));
        return Map.of("state", result.state().toString(), "assignor", result.partitionAssignor(),
            "coordinator", result.coordinator().id(), "members", members);
    }

    private static Object deleteGroup(Admin admin, JsonNode arguments) throws Exception {
        return now(admin.deleteConsumerGroups(List.of(arguments.get("group").asText())).all());
    }

    private static Object listGroupOffsets(Admin admin, JsonNode arguments) throws Exception {
        var result = now(admin.listConsumerGroupOffsets(arguments.get("group").asText()).partitionsToOffsetAndMetadata());
        return result.entrySet().stream().map(entry -> List.of(
            entry.getKey().topic(), entry.getKey().partition(), entry.getValue().offset())).toList();
    }

    private static Object alterGroupOffsets(Admin admin, JsonNode arguments) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(
            Driver.place(arguments.get("place")), new OffsetAndMetadata(arguments.get("offset").asLong()));
        return now(admin.alterConsumerGroupOffsets(arguments.get("group").asText(), offsets).all());
    }

    private static Object deleteGroupOffsets(Admin admin, JsonNode arguments) throws Exception {
        Set<TopicPartition> places = Set.of(Driver.place(arguments.get("place")));
        return now(admin.deleteConsumerGroupOffsets(arguments.get("group").asText(), places).all());
    }

    // --- partitions

    private static Object listOffsets(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition place = Driver.place(arguments.get("place"));
        String which = arguments.get("which").asText();
        OffsetSpec spec = switch (which) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "maxTimestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(Long.parseLong(which));
        };
        ListOffsetsResultInfo result = now(admin.listOffsets(Map.of(place, spec)).partitionResult(place));
        return List.of(result.offset(), result.timestamp());
    }

    private static Object deleteRecords(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition place = Driver.place(arguments.get("place"));
        RecordsToDelete before = RecordsToDelete.beforeOffset(arguments.get("before").asLong());
        return now(admin.deleteRecords(Map.of(place, before)).lowWatermarks().get(place)).lowWatermark();
    }

    // --- the node

    private static Object describeCluster(Admin admin, JsonNode arguments) throws Exception {
        DescribeClusterResult result = admin.describeCluster();
        return Map.of("id", now(result.clusterId()), "controller", now(result.controller()).id(), "nodes", now(result.nodes()).size());
    }

    private static Object describeLogDirs(Admin admin, JsonNode arguments) throws Exception {
        Map<String, Long> sizes = new TreeMap<>();
        now(admin.describeLogDirs(List.of(arguments.get("broker").asInt())).allDescriptions()).values().forEach(folders ->
            folders.values().forEach(folder -> folder.replicaInfos().forEach((place, info) ->
                sizes.put(place.toString(), info.size()))));
        return sizes;
    }

    private static Object describeProducers(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition place = Driver.place(arguments.get("place"));
        return now(admin.describeProducers(List.of(place)).partitionResult(place)).activeProducers().stream().map(one ->
            Map.of("epoch", one.producerEpoch(), "isOpen", one.currentTransactionStartOffset().isPresent())).toList();
    }

    /** Every transactional id with its state, and the description of one of them. */
    private static Object transactions(Admin admin, JsonNode arguments) throws Exception {
        Map<String, String> states = new TreeMap<>();
        now(admin.listTransactions().all()).forEach(one -> states.put(one.transactionalId(), one.state().toString()));
        String id = arguments.get("id").asText();
        var result = now(admin.describeTransactions(List.of(id)).description(id));
        List<Object> places = new ArrayList<>();
        result.topicPartitions().forEach(place -> places.add(Driver.shown(place)));
        return Map.of("states", states, "state", result.state().toString(), "places", places);
    }
}
