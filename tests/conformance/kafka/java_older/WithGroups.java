import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;

/** The same with what administrators can do since Kafka 2.5: groups described, moved and deleted, records deleted. */
public final class WithGroups {
    public static void main(String[] none) throws Exception {
        Older.OPERATIONS.put("groups", Older.with((admin, given) ->
            Older.now(admin.listConsumerGroups().all()).stream().map(one -> one.groupId()).toList()));
        Older.OPERATIONS.put("describeGroup", Older.with(WithGroups::describeGroup));
        Older.OPERATIONS.put("moveGroup", Older.with((admin, given) -> Older.now(admin.alterConsumerGroupOffsets(
            Older.text(given, "group"),
            Map.of(Older.spot(given), new OffsetAndMetadata(given.get("offset").asLong()))).all())));
        Older.OPERATIONS.put("deleteGroup", Older.with((admin, given) ->
            Older.now(admin.deleteConsumerGroups(List.of(Older.text(given, "group"))).all())));
        Older.OPERATIONS.put("deleteRecords", Older.with((admin, given) -> Older.now(admin.deleteRecords(
            Map.of(Older.spot(given), RecordsToDelete.beforeOffset(given.get("offset").asLong()))).all())));
        Older.main(none);
    }

    private static Object describeGroup(AdminClient admin, JsonNode given) throws Exception {
        String group = Older.text(given, "group");
        ConsumerGroupDescription described = Older.now(admin.describeConsumerGroups(List.of(group)).all()).get(group);
        return Map.of("state", described.state().toString(), "members", described.members().size());
    }
}
