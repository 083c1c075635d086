"""How a gateway in front of Kafka differs from a single node, for the compatibility page: what, and why."""

GATEWAY_DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "the offset of an event is its sequence number",
        "Kafka assigns positions after the bytes were sent",
    ),
    (
        "the enqueued time may step back when the leader of a partition changes",
        "each broker has its own clock",
    ),
    (
        "consumers with `isolation.level=read_uncommitted` see events of open transactions when these end",
        "gateways fetch up to the last stable offset, once for all readers",
    ),
    (
        "`acks=1` waits for two brokers as `acks=all` does",
        "gateways append in one way only",
    ),
    (
        "a regular expression of a consumer with `group.protocol=consumer` is evaluated by the gateway "
        "at each heartbeat",
        "the brokers know hubs under other names",
    ),
    (
        "a credential of one hub cannot list, describe or delete groups",
        "Kafka does not report which hubs a group reads",
    ),
    (
        "windows of Capture are closed by time only, and the capture job does not sleep",
        "events have no byte positions, and a gateway knows the end of a partition only while it is read",
    ),
    (
        "events are not kept past their retention until they are captured",
        "Kafka deletes them, and cannot wait for a reader",
    ),
    (
        "the folders of Capture must be named, and be shared by all gateways",
        "another gateway may run the job next; a gateway has no folder of its own",
    ),
    (
        "the Blob endpoint keeps blobs of up to 16 KiB, such as checkpoints and ownerships",
        "they are rows of the control log; larger ones would be files of one node",
    ),
    (
        "the sum of all gateways may exceed the throughput units of a namespace by up to 15 % in ten "
        "seconds, and in addition by one publication per gateway",
        "gateways share the units by reports of what their clients want, and each allows bursts of its own share",
    ),
    (
        "the rates of application groups apply to each gateway",
        "gateways report only the demand for throughput units",
    ),
    (
        "members of Kafka groups are described with the address of their gateway",
        "the coordinators of Kafka see the connections of gateways",
    ),
    (
        "sizes of partitions are 0 in the portal and in metrics; Kafka clients see those of Kafka",
        "Kafka reports sizes per replica and not per event hub",
    ),
    (
        "counters in metrics, charts and open links are those of one gateway; the page Gateways and the "
        "metrics `hubmere_gateway_*` have all gateways",
        "a scraper adds up the counters of several targets",
    ),
    (
        "the limits of offset commits and of requests for runtime information apply to each gateway",
        "they protect a process, and are not billed",
    ),
    (
        "an event that follows the creation of its hub at once may take up to two seconds; over HTTPS with `timeout=1` "
        "it is answered with 504 and published nevertheless",
        "the gateway creates the topic together with the hub, and its copies have to find their leader",
    ),
    (
        "`maxBytesPerTrigger` of Spark's `eventhubs` source is estimated by the size of the first events",
        "events have no byte positions, so a gateway cannot find where a partition reaches a number of bytes",
    ),
    (
        "events that Kafka has compacted away may be read for ten seconds more",
        "a gateway keeps fetched events in memory for all readers, and brokers do not report compaction",
    ),
    (
        "events that `DeleteRecords` has deleted may be read until the gateway fetches from that partition again",
        "it learns from the answer where the log begins now; until then, events in its memory count as existing",
    ),
    (
        "an exclusive reader of a dead gateway is replaced after about six seconds",
        "the gateway may be alive and cut off; its lease has to end first",
    ),
)
