"""Host names and ports of a node, for connection strings, Kafka metadata, the portal and the ready file."""

from dataclasses import dataclass

from hubmere.model.connection_string import ConnectionString
from hubmere.model.entity import AccessRule
from hubmere.model.names import fold

# The port that SDKs use when a connection string names none.
_DEFAULT_AMQPS_PORT = 5671
_LOCALHOST = "localhost"
# `*.example` in the settings stands for one host name per namespace.
_WILDCARD = "*."


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Host names and ports of a node; a port is None if the protocol is not served."""

    namespace: str  # the node's own namespace: host names without a namespace label mean this one
    hostnames: tuple[str, ...] = ()
    amqp: int | None = None
    amqps: int | None = None
    kafka: int | None = None
    kafkas: int | None = None
    http: int | None = None
    https: int | None = None
    ca_file: str | None = None  # certificate of the node's private CA, if it has one

    @property
    def host(self) -> str:
        """The default host name of the node: the first one in the settings.

        For a wildcard (`*.example`) it is the host name of the node's own namespace.
        """
        first = self.hostnames[0] if self.hostnames else _LOCALHOST
        return f"{fold(self.namespace)}.{self._domain}" if first.startswith(_WILDCARD) else first

    @property
    def _domain(self) -> str:
        first = self.hostnames[0] if self.hostnames else _LOCALHOST
        return first.removeprefix(_WILDCARD)

    def host_of(self, namespace: str) -> str:
        """The host name of a namespace: its label before the node's domain, unless it is the node's own namespace."""
        named = [name for name in self.hostnames if fold(name).partition(".")[0] == fold(namespace)]
        if named:
            return named[0]
        return self.host if fold(namespace) == fold(self.namespace) else f"{fold(namespace)}.{self._domain}"

    def connection_string(self, rule: AccessRule, key: str, *, namespace: str | None = None) -> str:
        """Connection string of a rule, over TLS. The string of a hub's rule names the hub."""
        port = None if self.amqps == _DEFAULT_AMQPS_PORT else self.amqps
        return self._build(rule, key, namespace or rule.namespace, port, is_emulator=False)

    def capture_connection_string(self, rule: AccessRule, hub: str, credential: str) -> str:
        """Connection string with which the capture job reads one hub; `credential` identifies the job."""
        string = ConnectionString.parse(self.connection_string(rule, rule.primary_key)).with_entity(hub)
        return string.with_capture_credential(credential).text()

    def emulator_connection_string(self, rule: AccessRule, key: str) -> str:
        """Connection string for clients in emulator mode, without TLS."""
        return self._build(rule, key, rule.namespace, self.amqp, is_emulator=True)

    def _build(self, rule: AccessRule, key: str, namespace: str, port: int | None, *, is_emulator: bool) -> str:
        return ConnectionString(
            host=self.host_of(namespace),
            port=port,
            key_name=rule.name,
            key=key,
            entity_path=rule.hub,
            is_emulator=is_emulator,
        ).text()
