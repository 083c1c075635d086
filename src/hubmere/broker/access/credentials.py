"""Credentials of clients. Endpoints parse these from their protocol; `Broker.sign_in` verifies them.

Texts are kept exactly as they arrived. None of them appears in a `repr`, so that none reaches a log.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SharedAccessSignature:
    """A SAS token: AMQP `$cbs`, the HTTP `Authorization` header."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SharedKey:
    """The name and a key of an authorization rule: SASL PLAIN."""

    rule: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionStringCredential:
    """A whole connection string: Kafka's user `$ConnectionString`, the portal's sign-in page."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token of an OAuth 2 issuer (JWT): AMQP `$cbs`, HTTP `Bearer`, Kafka OAUTHBEARER."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AdminToken:
    """The node's administrator token: HTTP `Bearer`, the portal's sign-in page."""

    text: str = field(repr=False)


Credential = SharedAccessSignature | SharedKey | ConnectionStringCredential | BearerToken | AdminToken
