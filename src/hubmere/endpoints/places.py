"""Where the node is reached: names and ports for connection strings, metadata answers and the ready file."""

from dataclasses import dataclass

from hubmere.model.connection_string import ConnectionString
from hubmere.model.entity import AccessRule
from hubmere.model.names import fold

# The ports that SDKs take when a connection string names none.
_DEFAULT_AMQPS_PORT = 5671
_LOCALHOST = "localhost"
# A host name of the settings that stands for one name in front of it for each namespace.
_WILDCARD = "*."


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The names and ports of a node; a port is None where the protocol is not served."""

    namespace: str  # the node's own, which every name without another namespace in front means
    hostnames: tuple[str, ...] = ()
    amqp: int | None = None
    amqps: int | None = None
    kafka: int | None = None
    kafkas: int | None = None
    http: int | None = None
    https: int | None = None
    ca_file: str | None = None  # certificate of the node's private authority, if it has one

    @property
    def host(self) -> str:
        """The name that clients are told by default: the first of the settings, below which namespaces are reached.

        Of a wildcard (`*.example`) it is the one of the node's own namespace.
        """
        first = self.hostnames[0] if self.hostnames else _LOCALHOST
        return f"{fold(self.namespace)}.{self._domain}" if first.startswith(_WILDCARD) else first

    @property
    def _domain(self) -> str:
        first = self.hostnames[0] if self.hostnames else _LOCALHOST
        return first.removeprefix(_WILDCARD)

    def host_of(self, namespace: str) -> str:
        """The name under which clients reach a namespace: its own in front of the node's, unless it is the node's."""
        named = [name for name in self.hostnames if fold(name).partition(".")[0] == fold(namespace)]
        if named:
            return named[0]
        return self.host if fold(namespace) == fold(self.namespace) else f"{fold(namespace)}.{self._domain}"

    def connection_string(self, rule: AccessRule, key: str, *, namespace: str | None = None) -> str:
        """What clients paste, over TLS; a hub's rule names its hub."""
        port = None if self.amqps == _DEFAULT_AMQPS_PORT else self.amqps
        return self._built(rule, key, namespace or rule.namespace, port, is_emulator=False)

    def capture_connection_string(self, rule: AccessRule, hub: str, credential: str) -> str:
        """The same for one hub, whosever rule it is, with what proves the capture job: what the job reads with."""
        string = ConnectionString.parse(self.connection_string(rule, rule.primary_key)).with_entity(hub)
        return string.with_capture_credential(credential).text()

    def emulator_connection_string(self, rule: AccessRule, key: str) -> str:
        """The same for clients in emulator mode: plain TCP."""
        return self._built(rule, key, rule.namespace, self.amqp, is_emulator=True)

    def _built(self, rule: AccessRule, key: str, namespace: str, port: int | None, *, is_emulator: bool) -> str:
        return ConnectionString(
            host=self.host_of(namespace),
            port=port,
            key_name=rule.name,
            key=key,
            entity_path=rule.hub,
            is_emulator=is_emulator,
        ).text()
