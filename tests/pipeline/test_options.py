"""Options as they are written for Microsoft's connector."""

import base64
import json
from hashlib import pbkdf2_hmac

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from hubmere.client.connection import KafkaAddress
from hubmere.pipeline.options import WITHOUT_EFFECT, InvalidOption, Options, read_options
from hubmere.pipeline.positions import EventPosition
from hubmere.settings.capture import TARGET_KEYS

SECRET = "c2VjcmV0IHNlY3JldA=="
SERVICE = f"Endpoint=sb://ns.example.net/;SharedAccessKeyName=root;SharedAccessKey={SECRET};EntityPath=orders"


def options(**given: str) -> Options:
    """Options by their short names, with a valid connection string."""
    names = {f"eventhubs.{name}": value for name, value in given.items()}
    return read_options({"eventhubs.connectionString": SERVICE} | names)


def encrypted(text: str, version: str) -> str:
    """A connection string as a version of the connector encrypts it (reference: service 10)."""
    key = pbkdf2_hmac("sha256", version.encode(), version.encode(), 1000, 32)
    padder = PKCS7(128).padder()
    encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    padded = padder.update(text.encode()) + padder.finalize()
    return base64.b64encode(encryptor.update(padded) + encryptor.finalize()).decode()


def test_connection_string_alone_is_enough() -> None:
    """Everything else has the connector's default, except limits: without one a trigger reads everything."""
    read = options()

    assert (read.hub, read.group) == ("orders", None)
    assert read.account.address == KafkaAddress(host="ns.example.net", port=9093, is_secure=True)
    assert (read.start, read.end) == (EventPosition.end_of_stream(), EventPosition.end_of_stream())
    assert (read.max_events, read.max_bytes, read.fails_on_data_loss) == (None, None, True)
    assert (read.account.answer_timeout_s, read.account.patience_s) == (60.0, 300.0)


@pytest.mark.parametrize("version", ["2.3.15", "2.3.18", "2.3.22"])
def test_encrypted_connection_string_is_decrypted(version: str) -> None:
    """Code for the connector passes its string through `EventHubsUtils.encrypt`; the key is the jar's version."""
    read = read_options({"eventhubs.connectionString": encrypted(SERVICE, version)})

    assert read.hub == "orders"
    assert SECRET in read.account.connection_string


def test_names_are_case_insensitive_and_need_no_prefix() -> None:
    """Spark passes options in lower case; `maxEventsPerTrigger` is written in both ways."""
    read = read_options({"EVENTHUBS.CONNECTIONSTRING": SERVICE, "maxeventspertrigger": "500"})

    assert read.max_events == 500


def test_options_of_the_connector_are_accepted() -> None:
    """Existing options work unchanged."""
    given = dict.fromkeys(WITHOUT_EFFECT, "1")

    assert options(**given) == options()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("eventhubs.maxEventPerTrigger", "maxEventsPerTrigger"),
        ("MAXEVENTSPERTRIGER", "maxEventsPerTrigger"),
        ("eventhubs.startPosition", "startingPosition"),
        ("failOnDataLos", "failOnDataLoss"),
        ("eventhubs.consumergroups", "consumerGroup"),
        ("eventhubs.capture.accountKey", "capture.account_key"),
    ],
)
def test_misspelt_option_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    """Ignoring a limit or a position would silently change the query."""
    with pytest.raises(InvalidOption, match=rf"'{name}'.*did you mean.*{nearest}"):
        read_options({"eventhubs.connectionString": SERVICE, name: "1"})


def test_options_of_a_location_are_the_keys_of_a_capture_target() -> None:
    """The manual refers to the keys of targets in the settings."""
    given = {f"capture.{name}": "x" for name in TARGET_KEYS if name != "url"}

    assert options(capture="s3://bucket", **given).capture_options.keys() == TARGET_KEYS.keys() - {"url"}


@pytest.mark.parametrize("name", ["kafka.group.id", "eventhubs.path", "subscribe"])
def test_option_of_another_source_is_refused(name: str) -> None:
    """This holds even if no name is similar."""
    with pytest.raises(InvalidOption, match="is not an option of this source"):
        read_options({"eventhubs.connectionString": SERVICE, name: "1"})


def test_options_that_spark_adds_are_accepted() -> None:
    """These are `load(path)`, the checkpoint of a stream, options of a catalog, and settings of the session."""
    given = dict.fromkeys(("path", "checkpointLocation", "serialization.format", "spark.some.setting", "__own"), "x")

    assert read_options({"eventhubs.connectionString": SERVICE} | given) == options()


def test_consumer_group_is_parsed() -> None:
    """A stream reports its progress under this group; the default group is shared by all."""
    assert options(consumerGroup="reports").group == "reports"
    assert options(consumerGroup="$default").group is None


def test_durations_are_parsed_in_the_documented_forms() -> None:
    """They are `PT%HH%MM%SS` in the Python examples, `PT60S` elsewhere."""
    read = options(receiverTimeout="PT00H01M20S", operationTimeout="PT10M")

    assert (read.account.answer_timeout_s, read.account.patience_s) == (80.0, 600.0)


def test_endpoint_and_ca_can_be_given() -> None:
    """A node may have other ports and its own CA."""
    read = options(endpoint="127.0.0.1:19093", caFile="/etc/ca.pem")

    assert read.account.address == KafkaAddress(host="127.0.0.1", port=19093, is_secure=True, ca_file="/etc/ca.pem")
    assert not options(tls="false").account.address.is_secure


def test_endpoints_of_several_gateways_can_be_given() -> None:
    """Without a load balancer in front of them, a job must survive the end of one."""
    read = options(endpoint="one:19093, two:29093,[::1]:9093", caFile="/etc/ca.pem")

    assert [str(address) for address in read.account.addresses] == ["one:19093", "two:29093", "::1:9093"]
    assert {address.ca_file for address in read.account.addresses} == {"/etc/ca.pem"}
    assert not any(address.is_secure for address in options(endpoint="one:1,two:2", tls="false").account.addresses)


def test_environment_names_the_hub_if_options_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Persistent tables lose their options."""
    monkeypatch.setenv("EVENTHUBS_CONNECTION_STRING", SERVICE)
    monkeypatch.setenv("EVENTHUBS_ENDPOINT", "localhost:1")

    read = read_options({})

    assert (read.hub, read.account.address.port) == ("orders", 1)


def test_positions_are_parsed_for_all_and_for_single_partitions() -> None:
    """The JSON is that of the connector's guide for Python."""
    whole = {"offset": None, "seqNo": -1, "enqueuedTime": "2026-01-01T00:00:00.500Z", "isInclusive": False}
    key = json.dumps({"ehName": "orders", "partitionId": 3})
    single = {"offset": None, "seqNo": 42, "enqueuedTime": None, "isInclusive": True}

    read = options(startingPosition=json.dumps(whole), startingPositions=json.dumps({key: single}))

    assert read.start == EventPosition(time_ms=1_767_225_600_500, inclusive=False)
    assert read.starts == {3: EventPosition(sequence=42)}


def test_beginning_and_end_have_short_names() -> None:
    """They are Kafka's words, and the connector's offsets without JSON."""
    first, last = EventPosition.start_of_stream(), EventPosition.end_of_stream()

    assert [options(startingPosition=text).start for text in ("earliest", "-1", "latest", "@latest")] == [
        first, first, last, last,
    ]  # fmt: skip


def test_positions_of_partitions_can_be_keyed_by_number() -> None:
    """The connector's keys are JSON inside JSON, which is hard to write."""
    read = options(startingPositions='{"0": {"seqNo": 5}, "1": "latest"}', endingPositions='{"0": {"seqNo": 9}}')

    assert read.starts == {0: EventPosition(sequence=5), 1: EventPosition.end_of_stream()}
    assert (read.ends, read.has_ending) == ({0: EventPosition(sequence=9)}, True)


def test_options_of_sparks_kafka_source_are_accepted() -> None:
    """A query that read the Kafka endpoint keeps its options, except the connection."""
    read = read_options(
        {
            "eventhubs.connectionString": SERVICE,
            "startingOffsets": '{"orders": {"0": 23, "1": -2, "2": -1}}',
            "endingOffsets": "latest",
            "maxOffsetsPerTrigger": "500",
            "minOffsetsPerTrigger": "50",
            "maxTriggerDelay": "5m",
        }
    )

    assert read.starts == {
        0: EventPosition(sequence=23),
        1: EventPosition.start_of_stream(),
        2: EventPosition.end_of_stream(),
    }
    assert not read.has_ending
    assert (read.min_events, read.max_events, read.max_delay_s) == (50, 500, 300.0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30 seconds", 30.0), ("2 minutes", 120.0), ("1h", 3600.0), ("PT1M", 60.0)]
)
def test_delay_is_parsed_in_the_format_of_spark(text: str, seconds: float) -> None:
    """`maxTriggerDelay` is Spark's option, so Spark's durations are accepted as well as the connector's."""
    assert options(maxTriggerDelay=text).max_delay_s == seconds


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"maxEventsPerTrigger": "0"}, "maxEventsPerTrigger"),
        ({"maxEventsPerTrigger": "5", "minEventsPerTrigger": "6"}, "minEventsPerTrigger"),
        ({"maxEventsPerTrigger": "5", "maxOffsetsPerTrigger": "6"}, "maxOffsetsPerTrigger"),
        ({"startingPosition": "latest", "startingOffsets": "earliest"}, "startingOffsets"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets"),
        ({"maxTriggerDelay": "5 fortnights"}, "maxTriggerDelay"),
        ({"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ({"tls": "perhaps"}, "tls"),
        ({"endpoint": "nowhere"}, "endpoint"),
        ({"endpoint": "one:9093,"}, "endpoint"),
        ({"receiverTimeout": "soon"}, "receiverTimeout"),
        ({"useAadAuth": "true"}, "useAadAuth"),
        ({"consumerGroup": "no/such name"}, "consumerGroup"),
        ({"startingPosition": "first"}, "startingPosition"),
        ({"startingPosition": "{}"}, "startingPosition"),
        ({"startingPosition": '{"offset": "x"}'}, "startingPosition"),
        ({"startingPosition": '{"seqNo": "1"}'}, "startingPosition"),
        ({"startingPosition": '{"enqueuedTime": "noon"}'}, "startingPosition"),
        ({"startingPositions": '{"{}": {}}'}, "startingPositions"),
        ({"startingPositions": '{"{\\"partitionId\\": 1, \\"ehName\\": \\"other\\"}": {}}'}, "startingPositions"),
        ({"startingPositions": '{"{\\"partitionId\\": 1}": 5}'}, "startingPositions"),
        ({"connectionString": SERVICE.replace(";EntityPath=orders", "")}, "EntityPath"),
        ({"connectionString": ""}, "connectionString"),
        ({"name": "alerts"}, "not the hub of the connection string, 'orders'"),
        ({"connectionString": "bm90IGVuY3J5cHRlZA=="}, "connectionString"),
        ({"connectionString": SERVICE.replace("root", "")}, "connectionString"),
    ],
    ids=repr,
)
def test_invalid_option_is_reported_by_name(given: dict[str, str], named: str) -> None:
    """The message names the option, and never repeats a key."""
    with pytest.raises(InvalidOption, match=named) as refusal:
        options(**given)

    assert SECRET not in str(refusal.value)
