"""Connection strings: `Endpoint=sb://host/;SharedAccessKeyName=..;SharedAccessKey=..[;EntityPath=..]`, parsed and
built.

Read as the SDKs read them: keys in any case and order, the first `=` splits, blanks and a trailing `;` are dropped,
unknown keys are ignored. Built with the known keys only, since the Java client refuses others. A refusal never repeats
a secret. Reference: service 2.6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from hubmere.model.errors import InvalidArgument

# The published key of the official emulator: it is accepted only by a node in emulator mode.
EMULATOR_KEY = "SAS_KEY_VALUE"

# Longer than any of the service; limits the work that an unauthenticated client can cause.
MAX_CHARACTERS = 8192

_SIGNATURE_SCHEME = "sharedaccesssignature "
_SCHEMES = ("sb", "amqp", "amqps", "http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionString:
    """The parts of a connection string: a host, and either a rule's name and key or a ready-made signature."""

    host: str
    port: int | None = None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    entity_path: str | None = None
    is_emulator: bool = False
    # Extension: the credential by which the capture job of a node authenticates.
    capture_credential: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> "ConnectionString":
        """Parse a text; raises InvalidArgument with the name of the bad key."""
        pairs = _pairs(text)
        host, port = _host_and_port(pairs)
        parsed = cls(
            host=host,
            port=port,
            key_name=pairs.get("sharedaccesskeyname") or None,
            key=pairs.get("sharedaccesskey") or None,
            signature=pairs.get("sharedaccesssignature") or None,
            entity_path=pairs.get("entitypath") or None,
            is_emulator=pairs.get("usedevelopmentemulator", "").lower() == "true",
            capture_credential=pairs.get("capturecredential") or None,
        )
        parsed._check_credentials()
        return parsed

    def _check_credentials(self) -> None:
        if self.signature is not None:
            if self.key_name is not None or self.key is not None:
                raise _bad("SharedAccessSignature", "given without a key: together they are ambiguous")
            if not self.signature.lower().startswith(_SIGNATURE_SCHEME):
                raise _bad("SharedAccessSignature", "a value that begins with 'SharedAccessSignature '")
        elif (self.key_name is None) is not (self.key is None):
            missing = "SharedAccessKeyName" if self.key_name is None else "SharedAccessKey"
            raise _bad(missing, "given together: SharedAccessKeyName and SharedAccessKey")

    def with_entity(self, entity_path: str | None) -> "ConnectionString":
        """The same for one hub, or for the namespace."""
        return replace(self, entity_path=entity_path)

    def with_capture_credential(self, credential: str) -> "ConnectionString":
        """The same for the capture job of the node."""
        return replace(self, capture_credential=credential)

    def text(self) -> str:
        """The connection string, including its secret."""
        address = f"[{self.host}]" if ":" in self.host else self.host
        place = address if self.port is None else f"{address}:{self.port}"
        pairs = [
            ("Endpoint", f"sb://{place}" if self.is_emulator else f"sb://{place}/"),
            ("SharedAccessKeyName", self.key_name),
            ("SharedAccessKey", self.key),
            ("SharedAccessSignature", self.signature),
            ("UseDevelopmentEmulator", "true" if self.is_emulator else None),
            ("EntityPath", self.entity_path),
            ("CaptureCredential", self.capture_credential),
        ]
        return ";".join(f"{name}={value}" for name, value in pairs if value is not None)


def _pairs(text: str) -> Mapping[str, str]:
    if len(text) > MAX_CHARACTERS:
        raise InvalidArgument("connection string", "(hidden)", f"at most {MAX_CHARACTERS} characters")
    pairs: dict[str, str] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, sign, value = part.partition("=")
        folded = name.strip().lower()
        if not sign or not folded:
            raise InvalidArgument("connection string", "(hidden)", "pairs of the form key=value, joined by ';'")
        if folded in pairs:
            raise _bad(name.strip(), "given once")
        pairs[folded] = value.strip()
    return pairs


def _host_and_port(pairs: Mapping[str, str]) -> tuple[str, int | None]:
    endpoint = pairs.get("endpoint") or pairs.get("hostname")
    if not endpoint:
        raise _bad("Endpoint", "sb://host/ is required")
    url = endpoint if "://" in endpoint else f"sb://{endpoint}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in _SCHEMES:
        raise InvalidArgument("Endpoint of a connection string", endpoint, "sb://host[:port]/")
    return host, port


def _bad(name: str, allowed: str) -> InvalidArgument:
    return InvalidArgument("connection string", f"{name}=(hidden)", allowed)
