"""Where the node says it is reached: the little of it that pages show."""

from typing import Protocol

from hubmere.model.entity import AccessRule


class Places(Protocol):
    """Names and ports of a node; a port is None where the protocol is not served."""

    @property
    def host(self) -> str:
        """The name that the node is told about by default."""

    @property
    def amqp(self) -> int | None:
        """Port of AMQP without TLS."""

    @property
    def amqps(self) -> int | None:
        """Port of AMQP over TLS."""

    @property
    def kafka(self) -> int | None:
        """Port of Kafka without TLS."""

    @property
    def kafkas(self) -> int | None:
        """Port of Kafka over TLS."""

    @property
    def http(self) -> int | None:
        """Port of HTTP."""

    @property
    def https(self) -> int | None:
        """Port of HTTPS."""

    def host_of(self, namespace: str) -> str:
        """The name under which clients reach a namespace."""

    def connection_string(self, rule: AccessRule, key: str) -> str:
        """What clients paste, over TLS."""

    def emulator_connection_string(self, rule: AccessRule, key: str) -> str:
        """The same for clients in emulator mode: plain TCP."""
