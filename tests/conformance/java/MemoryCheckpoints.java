import com.azure.messaging.eventhubs.CheckpointStore;
import com.azure.messaging.eventhubs.models.Checkpoint;
import com.azure.messaging.eventhubs.models.PartitionOwnership;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Checkpoints and ownership for one hub and group, in memory. */
final class MemoryCheckpoints implements CheckpointStore {
    private final Map<String, PartitionOwnership> owners = new ConcurrentHashMap<>();
    private final Map<String, Checkpoint> checkpoints = new ConcurrentHashMap<>();
    private volatile boolean isClosed;

    /** The checkpoints for another processor; whoever still claims something here, as a stopped one may, gets nothing. */
    MemoryCheckpoints handedOver() {
        isClosed = true;
        MemoryCheckpoints next = new MemoryCheckpoints();
        next.checkpoints.putAll(checkpoints);
        return next;
    }

    @Override
    public Flux<PartitionOwnership> listOwnership(String namespace, String hub, String group) {
        return Flux.fromIterable(owners.values());
    }

    @Override
    public Flux<PartitionOwnership> claimOwnership(List<PartitionOwnership> wanted) {
        return isClosed ? Flux.empty() : Flux.fromIterable(wanted).mapNotNull(this::claimed);
    }

    /** Who claims must have seen the claim before; null when it has not. */
    private PartitionOwnership claimed(PartitionOwnership wanted) {
        PartitionOwnership now = owners.compute(wanted.getPartitionId(), (partition, known) -> {
            boolean isCurrent = known == null || known.getETag().equals(wanted.getETag());
            return isCurrent ? wanted.setETag(UUID.randomUUID().toString()).setLastModifiedTime(System.currentTimeMillis()) : known;
        });
        return now == wanted ? now : null;
    }

    @Override
    public Flux<Checkpoint> listCheckpoints(String namespace, String hub, String group) {
        return Flux.fromIterable(checkpoints.values());
    }

    @Override
    public Mono<Void> updateCheckpoint(Checkpoint checkpoint) {
        return Mono.fromRunnable(() -> checkpoints.put(checkpoint.getPartitionId(), checkpoint));
    }
}
