import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.SendOptions;
import java.time.Duration;
import java.util.List;

/** Publishes three events to a partition with azure-messaging-eventhubs and reads that partition from its beginning. */
public final class RoundTrip {
    private static final String PARTITION = "0";

    public static void main(String[] arguments) {
        EventHubClientBuilder builder = new EventHubClientBuilder()
            .connectionString(System.getenv("EVENTHUB_CONNECTION_STRING"), System.getenv("EVENTHUB_NAME"))
            .consumerGroup(EventHubClientBuilder.DEFAULT_CONSUMER_GROUP_NAME);

        try (EventHubProducerClient producer = builder.buildProducerClient()) {
            List<EventData> events = List.of(new EventData("java 0"), new EventData("java 1"), new EventData("java 2"));
            producer.send(events, new SendOptions().setPartitionId(PARTITION));
        }
        try (EventHubConsumerClient consumer = builder.buildConsumerClient()) {
            EventPosition start = EventPosition.earliest();
            for (PartitionEvent event : consumer.receiveFromPartition(PARTITION, 3, start, Duration.ofSeconds(10))) {
                System.out.println(event.getData().getSequenceNumber() + ": " + event.getData().getBodyAsString());
            }
        }
    }
}
