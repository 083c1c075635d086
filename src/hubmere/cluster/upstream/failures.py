"""Failures towards the Kafka cluster, as types."""

from hubmere.wire.kafka.errors import ErrorCode


class UpstreamFailure(Exception):
    """Something between a gateway and its cluster failed. `is_lasting`: trying again does not help."""

    is_lasting = False


class BrokerUnreachable(UpstreamFailure):
    """A connection could not be made, or broke. Requests on it may have been executed."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"the Kafka broker {address} cannot be reached: {why}")


class CredentialsRefused(UpstreamFailure):
    """The brokers do not accept the credentials of the settings."""

    is_lasting = True

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"the Kafka broker {address} refuses the credentials of the settings: {why}")


class ApiMissing(UpstreamFailure):
    """The brokers are too old."""

    is_lasting = True

    def __init__(self, address: str, api: str, version: int, release: str) -> None:
        super().__init__(
            f"the Kafka broker {address} does not serve {api} version {version}: "
            f"Apache Kafka {release} or newer is needed"
        )


class TopicDamaged(UpstreamFailure):
    """The topic of a hub was deleted, or replaced by another one of the same name."""

    is_lasting = True


class RequestRefused(UpstreamFailure):
    """A broker answered with an error code."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = code
        name = next((known.name for known in ErrorCode if known == code), str(code))
        super().__init__(f"{what}: {name}" + (f" ({message})" if message else ""))
