"""The SASL exchange (AMQP 1.0, 5.3), both sides, without the frames around it.

Decides which mechanisms succeed at once and which carry credentials that the caller must check. Mechanisms with several
rounds are not offered: no Event Hubs client supports one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hubmere.wire.amqp.codec.performatives import SaslInit
from hubmere.wire.amqp.errors import Condition, RemoteProtocolError
from hubmere.wire.amqp.signals import CredentialsOffered

ANONYMOUS = "ANONYMOUS"
PLAIN = "PLAIN"
EXTERNAL = "EXTERNAL"
# Tokens follow later, by put-token on the claims node; .NET clients require this name.
MSSBCBS = "MSSBCBS"

# Plain AMQP clients choose the first offered mechanism that they support.
OFFERED = (MSSBCBS, PLAIN, ANONYMOUS, EXTERNAL)

# AMQP 1.0, 5.3.3.6
OUTCOME_OK = 0
OUTCOME_AUTH = 1


def evaluate_init(init: SaslInit, offered: Sequence[str]) -> CredentialsOffered | bool:
    """True or False if the mechanism alone decides, else the credentials that the caller must check."""
    mechanism = init.mechanism
    if mechanism not in offered:
        return False
    if mechanism in (ANONYMOUS, MSSBCBS):
        # The initial response of ANONYMOUS is trace information (RFC 4505); JavaScript clients put the key name there.
        return True
    if mechanism == EXTERNAL:
        return CredentialsOffered(EXTERNAL, "", "", init.hostname)
    user, password = read_plain(init.initial_response or b"")
    return CredentialsOffered(PLAIN, user, password, init.hostname)


def read_plain(response: bytes) -> tuple[str, str]:
    """User and password of a PLAIN response (RFC 4616); an authorisation identity is ignored."""
    parts = response.split(b"\x00")
    if len(parts) != 3:
        raise RemoteProtocolError(Condition.DECODE_ERROR, "a PLAIN response has three parts")
    try:
        return parts[1].decode("utf-8"), parts[2].decode("utf-8")
    except UnicodeDecodeError:
        raise RemoteProtocolError(Condition.DECODE_ERROR, "a PLAIN response is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The credentials of a client: one mechanism and its initial response."""

    mechanism: str = ANONYMOUS
    initial_response: bytes = field(default=b"", repr=False)

    @classmethod
    def plain(cls, user: str, password: str) -> ClientCredentials:
        """Credentials for PLAIN."""
        return cls(PLAIN, b"\x00" + user.encode("utf-8") + b"\x00" + password.encode("utf-8"))

    def init(self, offered: Sequence[str], hostname: str | None) -> SaslInit:
        """The SASL init that answers the server's list of mechanisms."""
        if self.mechanism not in offered:
            raise RemoteProtocolError(Condition.UNAUTHORIZED_ACCESS, f"the server does not offer {self.mechanism}")
        return SaslInit(self.mechanism, self.initial_response, hostname)
