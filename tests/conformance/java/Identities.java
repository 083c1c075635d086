import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.credential.TokenCredential;
import com.azure.identity.AzureCliCredentialBuilder;
import com.azure.identity.DefaultAzureCredentialBuilder;
import com.azure.identity.EnvironmentCredentialBuilder;
import com.azure.identity.ManagedIdentityCredentialBuilder;
import com.azure.identity.WorkloadIdentityCredentialBuilder;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.SendOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Has azure-identity get a token from the node's own issuer, with environment variables only. */
final class Identities {
    private static final Duration WAIT = Duration.ofSeconds(120);

    private Identities() {
    }

    /** Publishes an event and reads it again, signed in by AMQP with a credential of the library. */
    static Object roundTrip(JsonNode arguments) {
        String body = arguments.get("body").asText();
        TokenCredential credential = credential(arguments.get("kind").asText());
        EventHubClientBuilder builder = new EventHubClientBuilder()
            .credential("localhost", arguments.get("hub").asText(), credential)
            .customEndpointAddress("https://" + arguments.get("address").asText())
            .transportType(AmqpTransportType.AMQP);
        try (EventHubProducerClient producer = builder.buildProducerClient()) {
            producer.send(List.of(new EventData(body)), new SendOptions().setPartitionId("0"));
        }
        List<String> seen = new ArrayList<>();
        try (EventHubConsumerClient consumer = builder.consumerGroup("$Default").buildConsumerClient()) {
            // One event at a time: a call returns when it has all that it asked for, or after its time-out.
            EventPosition next = EventPosition.earliest();
            Instant deadline = Instant.now().plus(WAIT);
            while (!seen.contains(body) && Instant.now().isBefore(deadline)) {
                for (PartitionEvent event : consumer.receiveFromPartition("0", 1, next, WAIT)) {
                    seen.add(event.getData().getBodyAsString());
                    next = EventPosition.fromSequenceNumber(event.getData().getSequenceNumber());
                }
            }
        }
        return Map.of("seen", seen);
    }

    private static TokenCredential credential(String kind) {
        return switch (kind) {
            case "default" -> new DefaultAzureCredentialBuilder().build();
            case "environment" -> new EnvironmentCredentialBuilder().build();
            case "managed" -> new ManagedIdentityCredentialBuilder().build();
            case "workload" -> new WorkloadIdentityCredentialBuilder().build();
            case "cli" -> new AzureCliCredentialBuilder().build();
            default -> throw new IllegalArgumentException(kind);
        };
    }
}
