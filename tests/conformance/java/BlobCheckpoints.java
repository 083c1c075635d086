import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.storage.blob.BlobContainerAsyncClient;
import com.azure.storage.blob.BlobContainerClientBuilder;
import com.azure.storage.blob.models.BlobItem;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Has azure-messaging-eventhubs-checkpointstore-blob keep checkpoints in the node's own storage account. */
final class BlobCheckpoints {
    private static final long WAIT_SECONDS = 120;

    private BlobCheckpoints() {
    }

    /** Processes events from the checkpoints of a container until `count` of them are seen; each is checkpointed. */
    static Object process(String connection, String hub, JsonNode arguments) throws InterruptedException {
        BlobContainerAsyncClient container = new BlobContainerClientBuilder()
            .connectionString(arguments.get("storage").asText())
            .containerName(arguments.get("container").asText())
            .buildAsyncClient();
        container.createIfNotExists().block();
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch missing = new CountDownLatch(arguments.get("count").asInt());
        EventProcessorClient processor = new EventProcessorClientBuilder()
            .connectionString(connection, hub)
            .consumerGroup("$Default")
            .checkpointStore(new BlobCheckpointStore(container))
            .initialPartitionEventPosition(partition -> EventPosition.earliest())
            .processEvent(context -> {
                seen.add(context.getEventData().getBodyAsString());
                context.updateCheckpoint();
                missing.countDown();
            })
            .processError(context -> { })
            .buildEventProcessorClient();
        processor.start();
        missing.await(WAIT_SECONDS, TimeUnit.SECONDS);
        processor.stop();
        List<String> names = container.listBlobs().map(BlobItem::getName).collectList().block();
        return Map.of("seen", new ArrayList<>(seen), "names", names);
    }
}
