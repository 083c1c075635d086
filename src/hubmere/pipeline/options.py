"""The options of `format("eventhubs")`: those of Microsoft's connector, parsed once into values.

Names are compared without case, with or without the prefix `eventhubs.`. Options that only configure that connector's
AMQP receivers are accepted without effect. Options that would change the meaning of a query and are not supported are
refused. So are unknown names, since a misspelt limit or position would be ignored silently. Reference: service 10.
"""

import os
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, TypeVar

from hubmere.client.connection import CLIENT_ID_PREFIX, Account, KafkaAddress
from hubmere.model.errors import InvalidArgument
from hubmere.model.names import group_name
from hubmere.model.security.connection_string import ConnectionString
from hubmere.pipeline.history.location import LOCATION_OPTIONS, read_location
from hubmere.pipeline.positions import (
    EventPosition,
    InvalidPosition,
    read_kafka_offsets,
    read_position,
    read_positions,
)

T = TypeVar("T")

PREFIX: Final = "eventhubs."
CLIENT_ID: Final = CLIENT_ID_PREFIX + "spark"

# Persistent tables lose their options (Spark 4), so the connection may also come from the environment.
CONNECTION_VARIABLE: Final = "EVENTHUBS_CONNECTION_STRING"
ENDPOINT_VARIABLE: Final = "EVENTHUBS_ENDPOINT"
CA_FILE_VARIABLE: Final = "EVENTHUBS_CA_FILE"

# Versions of the connector whose `EventHubsUtils.encrypt` is read: 2.3.15 was the first that required it.
_CONNECTOR_VERSIONS: Final = tuple(f"2.3.{minor}" for minor in range(22, 14, -1))
_KEY_ROUNDS: Final = 1000
_KEY_BYTES: Final = 32
_AES_BLOCK_BITS: Final = 128

_DEFAULT_GROUP: Final = "$default"
# The connector's own defaults.
_RECEIVER_TIMEOUT_S: Final = 60.0
_OPERATION_TIMEOUT_S: Final = 300.0

# Options of the connector without effect here: there is no AMQP receiver to configure.
WITHOUT_EFFECT: Final = frozenset(
    name.lower()
    for name in (
        "prefetchCount",
        "threadPoolSize",
        "useExclusiveReceiver",
        "maxSilentTime",
        "DynamicPartitionDiscovery",
        "slowPartitionAdjustment",
        "maxAcceptableBatchReceiveTime",
        "throttlingStatusPlugin",
        "metricPlugin",
        "partitionPreferredLocationStrategy",
        "maxRatePerPartition",
        "maxRatesPerPartition",
        "useSimulatedClient",
    )
)
# The supported options, in the spelling of the manual.
_WITH_EFFECT: Final = (
    "connectionString", "name", "endpoint", "tls", "caFile", "consumerGroup", "startingPosition", "startingPositions",
    "endingPosition", "endingPositions", "maxEventsPerTrigger", "minEventsPerTrigger", "maxTriggerDelay",
    "maxBytesPerTrigger", "maxTasks", "failOnDataLoss", "writeId", "receiverTimeout", "operationTimeout", "useAadAuth",
    "capture", "localSegments",
)  # fmt: skip
# Options of Spark's Kafka source, and the name that they have here.
_OF_KAFKA: Final = {
    "startingOffsets": "startingPosition", "endingOffsets": "endingPosition",
    "maxOffsetsPerTrigger": "maxEventsPerTrigger", "minOffsetsPerTrigger": "minEventsPerTrigger",
}  # fmt: skip
# Before the names of a capture destination's own options, such as `connection_string`.
_CAPTURE_OPTIONS: Final = "capture."
# How long fewer events than `minEventsPerTrigger` wait: the default of Spark's Kafka source.
_MAX_TRIGGER_DELAY_S: Final = 15 * 60.0
# Refused together with `useAadAuth`, ignored otherwise.
_OF_AAD_AUTH: Final = ("aadAuthCallback", "AadAuthCallbackParams")
# Options that Spark, its catalogs and its writers add to every source.
_OF_SPARK: Final = frozenset(
    {"path", "checkpointlocation", "queryname", "outputmode", "serialization.format", "mergeschema", "provider"}
)
_OF_SPARK_PREFIXES: Final = ("spark.", "__")
_NOWHERE: Final[Mapping[int, EventPosition]] = {}
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_SPARK_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]+)", re.IGNORECASE)
_SPARK_UNITS: Final = {
    "ms": 0.001, "millisecond": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0,
    "h": 3_600.0, "hour": 3_600.0, "d": 86_400.0, "day": 86_400.0,
}  # fmt: skip
_SECONDS_OF: Final = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}


class InvalidOption(ValueError):
    """An option is not valid; the text never contains a secret."""

    def __init__(self, name: str, allowed: str) -> None:
        super().__init__(name, allowed)
        self.name = name
        self.allowed = allowed

    def __str__(self) -> str:
        return f"option '{self.name}': {self.allowed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a query."""

    account: Account
    hub: str
    group: str | None = None  # under which a stream reports its progress
    start: EventPosition = EventPosition.end_of_stream()  # noqa: RUF009  a frozen value
    starts: Mapping[int, EventPosition] = field(default_factory=dict)
    end: EventPosition = EventPosition.end_of_stream()  # noqa: RUF009  a frozen value
    ends: Mapping[int, EventPosition] = field(default_factory=dict)
    max_events: int | None = None
    min_events: int | None = None
    max_delay_s: float = _MAX_TRIGGER_DELAY_S
    max_bytes: int | None = None
    max_tasks: int | None = None
    fails_on_data_loss: bool = True
    write_id: str | None = None
    capture: str | None = None  # `auto`, or the URL of captured files, which are read below the log's first event
    capture_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    reads_local_segments: bool = True  # from the files of a node on the same machine

    @property
    def has_ending(self) -> bool:
        """Whether a position before the end of the stream is given as its end."""
        return bool(self.ends) or self.end != EventPosition.end_of_stream()


def read_options(given: Mapping[str, str]) -> Options:
    """Parse the options of a query; raises InvalidOption."""
    _check_names(given)
    texts = _Texts(given)
    connection = _connection(texts)
    if texts.switch("useAadAuth", default=False):
        raise InvalidOption(PREFIX + "useAadAuth", "is not supported; use a connection string")
    hub = str(connection.entity_path)
    start, starts = _positions(texts, "starting", hub)
    end, ends = _positions(texts, "ending", hub)
    min_events, max_events = _events_per_trigger(texts)
    return Options(
        account=_account(texts, connection),
        hub=hub,
        group=texts.read("consumerGroup", _group, None),
        start=start,
        starts=starts,
        end=end,
        ends=ends,
        max_events=max_events,
        min_events=min_events,
        max_delay_s=texts.read("maxTriggerDelay", _seconds, _MAX_TRIGGER_DELAY_S),
        max_bytes=texts.read("maxBytesPerTrigger", _positive, None),
        max_tasks=texts.read("maxTasks", _positive, None),
        fails_on_data_loss=texts.switch("failOnDataLoss", default=True),
        write_id=texts.get("writeId") or None,
        capture=texts.read("capture", read_location, None),
        capture_options=texts.below(_CAPTURE_OPTIONS),
        reads_local_segments=texts.read("localSegments", _is_auto, True),
    )


def _check_names(given: Mapping[str, str]) -> None:
    """Refuse an option that neither this source nor Spark has."""
    of_location = (_CAPTURE_OPTIONS + name for name in LOCATION_OPTIONS)
    names = (*_WITH_EFFECT, *_OF_AAD_AUTH, *_OF_KAFKA, *of_location)
    known = {name.lower(): name for name in names} | {name: name for name in WITHOUT_EFFECT}
    for name in given:
        folded = name.lower()
        short = folded.removeprefix(PREFIX)
        is_sparks = folded in _OF_SPARK or folded.startswith(_OF_SPARK_PREFIXES)
        if short not in known and not is_sparks:
            near = [known[each] for each in get_close_matches(short, known)]
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise InvalidOption(name, f"is not an option of this source{hint}")


def _positions(texts: "_Texts", which: str, hub: str) -> tuple[EventPosition, Mapping[int, EventPosition]]:
    """The position of all partitions and those of single ones, in the connector's form or in that of Spark's Kafka."""
    every = texts.read(f"{which}Position", read_position, EventPosition.end_of_stream())
    single = texts.read(f"{which}Positions", lambda text: read_positions(text, hub), _NOWHERE)
    offsets = f"{which}Offsets"
    text = (texts.get(offsets) or "").strip()
    if not text:
        return every, single
    texts.refuse_both(offsets, f"{which}Position")
    if text.startswith("{"):
        return every, texts.read(offsets, lambda text: read_kafka_offsets(text, hub), _NOWHERE)
    return texts.read(offsets, read_position, every), single


def _events_per_trigger(texts: "_Texts") -> tuple[int | None, int | None]:
    """The least and the most events of a trigger."""
    found: list[int | None] = []
    for name, of_kafka in (
        ("minEventsPerTrigger", "minOffsetsPerTrigger"),
        ("maxEventsPerTrigger", "maxOffsetsPerTrigger"),
    ):
        texts.refuse_both(of_kafka, name)
        found.append(texts.read(name, _positive, None) or texts.read(of_kafka, _positive, None))
    least, most = found
    if least is not None and most is not None and least > most:
        raise InvalidOption(PREFIX + "minEventsPerTrigger", f"{least} is more than maxEventsPerTrigger, {most}")
    return least, most


class _Texts:
    """Options by their short names, without prefix and case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._texts = {name.lower().removeprefix(PREFIX): text for name, text in given.items()}

    def get(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def read(self, name: str, read: Callable[[str], T], default: T) -> T:
        text = self.get(name)
        if text is None or not text.strip():
            return default
        try:
            return read(text)
        except (InvalidPosition, ValueError) as error:
            raise InvalidOption(PREFIX + name, str(error)) from None

    def below(self, prefix: str) -> dict[str, str]:
        """The options whose names begin so, by the rest of their names."""
        return {name.removeprefix(prefix): text for name, text in self._texts.items() if name.startswith(prefix)}

    def refuse_both(self, of_kafka: str, name: str) -> None:
        """An option and its name in Spark's Kafka source must not contradict each other."""
        if self.get(of_kafka) is not None and self.get(name) is not None:
            raise InvalidOption(of_kafka, f"is {name} under the name of Spark's Kafka source; give one of them")

    def switch(self, name: str, *, default: bool) -> bool:
        return self.read(name, _switch, default)


def _switch(text: str) -> bool:
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError(f"'{text}' is neither true nor false")
    return folded == "true"


def _group(text: str) -> str | None:
    """The group under which progress is reported; none for the default group, which all readers share."""
    name = _parse_group(text)
    return None if name.lower() == _DEFAULT_GROUP else name


def _parse_group(text: str) -> str:
    try:
        return str(group_name(text.strip()))
    except InvalidArgument as refusal:
        raise ValueError(refusal.text()) from None


def _is_auto(text: str) -> bool:
    if text.strip().lower() not in ("auto", "off"):
        raise ValueError(f"'{text}' is not auto or off")
    return text.strip().lower() == "auto"


def _positive(text: str) -> int | None:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"'{text}' is not a whole number above 0")
    return int(text)


# --- connection ---------------------------------------------------------------------------------------------------


def _connection(texts: _Texts) -> ConnectionString:
    name = PREFIX + "connectionString"
    text = texts.get("connectionString") or os.environ.get(CONNECTION_VARIABLE)
    if not text:
        raise InvalidOption(name, f"is required (or the variable {CONNECTION_VARIABLE})")
    try:
        connection = ConnectionString.parse(plain_connection_string(text))
    except InvalidArgument as refusal:
        raise InvalidOption(name, refusal.text()) from None
    own, named = connection.entity_path, texts.get("name")
    if own and named and own.lower() != named.lower():
        raise InvalidOption(PREFIX + "name", f"'{named}' is not the hub of the connection string, '{own}'")
    hub = own or named
    if not hub:
        raise InvalidOption(name, "must name the hub in EntityPath")
    return connection.with_entity(hub)


def _account(texts: _Texts, connection: ConnectionString) -> Account:
    ca_file = texts.get("caFile") or os.environ.get(CA_FILE_VARIABLE)
    address = KafkaAddress.of(connection, ca_file=ca_file)
    endpoint = texts.get("endpoint") or os.environ.get(ENDPOINT_VARIABLE)
    places = _hosts_and_ports(endpoint) if endpoint else [(address.host, address.port)]
    tls = texts.get("tls")
    is_secure = address.is_secure if tls is None else _tls(tls)
    first, *others = (KafkaAddress(host=host, port=port, is_secure=is_secure, ca_file=ca_file) for host, port in places)
    return Account(
        address=first,
        other_addresses=tuple(others),
        connection_string=connection.text(),
        client_id=CLIENT_ID,
        answer_timeout_s=texts.read("receiverTimeout", _seconds, _RECEIVER_TIMEOUT_S),
        patience_s=texts.read("operationTimeout", _seconds, _OPERATION_TIMEOUT_S),
    )


def _tls(text: str) -> bool:
    try:
        return _switch(text)
    except ValueError as error:
        raise InvalidOption(PREFIX + "tls", str(error)) from None


def _hosts_and_ports(text: str) -> list[tuple[str, int]]:
    """One endpoint, or those of several gateways of a cluster, separated by commas."""
    return [_host_and_port(each) for each in text.split(",")]


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InvalidOption(PREFIX + "endpoint", f"'{text}' is not host:port of a Kafka endpoint")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _seconds(text: str) -> float:
    """A duration as the connector writes it (PT60S), its JSON form, Spark's (15m, 30 seconds), or plain seconds."""
    plain = text.strip().strip('"')
    if plain.replace(".", "", 1).isdecimal():
        return float(plain)
    spark = _SPARK_DURATION.fullmatch(plain)
    unit = spark["unit"].lower() if spark else ""
    factor = _SPARK_UNITS.get(unit) or _SPARK_UNITS.get(unit.removesuffix("s"))
    if spark is not None and factor is not None:
        return float(spark["number"]) * factor
    found = _DURATION.fullmatch(plain)
    parts = {unit: number for unit, number in found.groupdict().items() if number} if found else {}
    if not parts:
        raise ValueError(f"'{text}' is not a duration such as PT60S or 60s")
    return sum(float(number) * _SECONDS_OF[unit] for unit, number in parts.items())


# --- the connector's encrypted form ----------------------------------------------------------------------------------


def plain_connection_string(text: str) -> str:
    """A plain connection string, or one in the form of `EventHubsUtils.encrypt`.

    That form is no protection: AES-256 in ECB mode under a key made from the connector's public version number.
    """
    if "endpoint=" in text.lower() or "hostname=" in text.lower():
        return text
    try:
        encrypted = b64decode(text.strip(), validate=True)
    except (Base64Error, ValueError):
        return text
    for version in _CONNECTOR_VERSIONS:
        plain = _decrypt(encrypted, version)
        if plain is not None:
            return plain
    return text


def _decrypt(encrypted: bytes, version: str) -> str | None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    decryptor = Cipher(algorithms.AES256(_key_of(version)), modes.ECB()).decryptor()  # noqa: S305  not our choice
    unpadder = PKCS7(_AES_BLOCK_BITS).unpadder()
    try:
        padded = decryptor.update(encrypted) + decryptor.finalize()
        plain = (unpadder.update(padded) + unpadder.finalize()).decode()
    except ValueError:
        return None
    return plain if "endpoint=" in plain.lower() else None


@lru_cache(maxsize=len(_CONNECTOR_VERSIONS))
def _key_of(version: str) -> bytes:
    from hashlib import pbkdf2_hmac

    return pbkdf2_hmac("sha256", version.encode(), version.encode(), _KEY_ROUNDS, _KEY_BYTES)
