"""Configuration of topics and brokers: DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44)."""

from enum import IntEnum

from hubmere.wire.kafka.schema import BOOL, INT8, INT16, INT32, STRING, EncodedStruct, api, array, struct, wire


class ResourceType(IntEnum):
    """The type of the resource that has a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigSource(IntEnum):
    """Where a current value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigType(IntEnum):
    """The data type of a value (DescribeConfigs, version 3 on)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does with an entry; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# --- DescribeConfigs -------------------------------------------------------------------------------------------------


@struct
class ConfigResource:
    """A resource and the names of the requested entries; null or an empty list means all."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: tuple[str, ...] | None = wire(array(STRING), nullable=True, default=None)


@struct
class DescribeConfigsRequest:
    """Resources to describe."""

    resources: tuple[ConfigResource, ...] = wire(array(ConfigResource))
    include_synonyms: bool = wire(BOOL, since=1, default=False)
    include_documentation: bool = wire(BOOL, since=3, default=False)


@struct
class ConfigSynonym:
    """Another place where the same setting can be given."""

    name: str = wire(STRING, since=1)
    value: str | None = wire(STRING, since=1, nullable=True)
    source: int = wire(INT8, since=1)


@struct
class DescribedConfig:
    """One current entry."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=True)
    read_only: bool = wire(BOOL)
    is_default: bool = wire(BOOL, until=0, default=False)
    config_source: int = wire(INT8, since=1, default=-1)
    is_sensitive: bool = wire(BOOL)
    synonyms: tuple[ConfigSynonym, ...] = wire(array(ConfigSynonym), since=1, default=())
    config_type: int = wire(INT8, since=3, default=ConfigType.UNKNOWN)
    documentation: str | None = wire(STRING, since=3, nullable=True, default=None)


@struct
class DescribeConfigsResult:
    """The entries of one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[DescribedConfig, ...] = wire(array(DescribedConfig))


@struct
class DescribeConfigsResponse:
    """One result for each resource."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[DescribeConfigsResult | EncodedStruct, ...] = wire(array(DescribeConfigsResult, preencoded=True))


# --- AlterConfigs ----------------------------------------------------------------------------------------------------


@struct
class ReplacedConfig:
    """One entry of the new configuration."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=True)


@struct
class ReplacedResource:
    """A resource whose entries are replaced as a whole."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[ReplacedConfig, ...] = wire(array(ReplacedConfig))


@struct
class AlterConfigsRequest:
    """Replace all entries of resources; entries that are not named get their defaults."""

    resources: tuple[ReplacedResource, ...] = wire(array(ReplacedResource))
    validate_only: bool = wire(BOOL)


@struct
class AlteredResource:
    """Whether one resource was changed."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@struct
class AlterConfigsResponse:
    """One result for each resource."""

    throttle_time_ms: int = wire(INT32, default=0)
    responses: tuple[AlteredResource, ...] = wire(array(AlteredResource))


# --- IncrementalAlterConfigs -----------------------------------------------------------------------------------------


@struct
class ChangedConfig:
    """One entry and the operation on it."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable=True)


@struct
class ChangedResource:
    """A resource of which only the named entries change."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[ChangedConfig, ...] = wire(array(ChangedConfig))


@struct
class IncrementalAlterConfigsRequest:
    """Change single entries (KIP-339)."""

    resources: tuple[ChangedResource, ...] = wire(array(ChangedResource))
    validate_only: bool = wire(BOOL)


@struct
class IncrementalAlterConfigsResponse:
    """One result for each resource."""

    throttle_time_ms: int = wire(INT32, default=0)
    responses: tuple[AlteredResource, ...] = wire(array(AlteredResource))


DESCRIBE_CONFIGS = api(32, DescribeConfigsRequest, DescribeConfigsResponse, versions=(0, 4), flexible_since=4)
ALTER_CONFIGS = api(33, AlterConfigsRequest, AlterConfigsResponse, versions=(0, 2), flexible_since=2)
INCREMENTAL_ALTER_CONFIGS = api(
    44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, versions=(0, 1), flexible_since=1
)

APIS = (DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
