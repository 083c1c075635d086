"""Refusals of access: who a client is and what it may do."""

from datetime import UTC, datetime

from hubmere.model.errors.base import Refusal


class Unauthorized(Refusal):
    """The caller is not authenticated, or lacks the right."""


class MissingToken(Unauthorized):
    """No credential was given."""

    def text(self) -> str:
        return "MissingToken: The request has no authorization; send a SharedAccessSignature token."


class AdminRequired(Unauthorized):
    """Only the administrator's token allows this."""

    def text(self) -> str:
        return "Unauthorized access. This operation needs the administrator's token."


class MalformedToken(Unauthorized):
    """The credential cannot be parsed."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"MalformedToken: {self.why}"


class UnsupportedToken(Unauthorized):
    """A kind of credential that the node does not accept: it trusts no issuer."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind

    def text(self) -> str:
        return (
            f"UnsupportedToken: '{self.kind}' tokens need a configured issuer; use a SAS token or a connection string."
        )


class WrongAdminToken(Unauthorized):
    """A bearer token that is not the administrator's token of this node."""

    def text(self) -> str:
        return (
            "InvalidToken: The bearer token is not the administrator's token of this node. "
            "The ready file of the node holds the token as 'admin_token'."
        )


class InvalidIssuer(Unauthorized):
    """The token comes from an issuer that the node does not trust; the text does not repeat its name."""

    def text(self) -> str:
        return "InvalidIssuer: The issuer of the token is not one that this node trusts."


class TokenNotYetValid(Unauthorized):
    """The token becomes valid later."""

    def __init__(self, valid_from_s: int) -> None:
        super().__init__(valid_from_s)
        self.valid_from_s = valid_from_s

    def text(self) -> str:
        return f"TokenNotYetValid: The token is valid from '{_instant(self.valid_from_s)}' on."


class KeysUnavailable(Refusal):
    """The signing keys of a trusted issuer cannot be fetched now."""

    def __init__(self, issuer: str) -> None:
        super().__init__(issuer)
        self.issuer = issuer

    def text(self) -> str:
        return f"KeysUnavailable: The signing keys of the issuer '{self.issuer}' cannot be fetched; try again."


class InvalidSignature(Unauthorized):
    """The signature matches no key of the rule or of the issuer."""

    def text(self) -> str:
        return "InvalidSignature: The token has an invalid signature."


class CredentialRevoked(Unauthorized):
    """The rule was deleted or its key was regenerated after the client has authenticated."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule

    def text(self) -> str:
        return (
            f"Unauthorized access. The credential of the authorization rule '{self.rule}' was revoked: "
            "the rule was deleted or its key was regenerated."
        )


class InvalidAudience(Unauthorized):
    """The token is for another resource."""

    def __init__(self, audience: str, resource: str) -> None:
        super().__init__(audience, resource)
        self.audience = audience
        self.resource = resource

    def text(self) -> str:
        return f"InvalidAudience: The token for '{self.audience}' does not cover '{self.resource}'."


class ExpiredToken(Unauthorized):
    """The token has expired."""

    def __init__(self, expired_at_s: int) -> None:
        super().__init__(expired_at_s)
        self.expired_at_s = expired_at_s

    def text(self) -> str:
        return f"ExpiredToken: The token is expired. Expiration time: '{_instant(self.expired_at_s)}'."


class ClaimMissing(Unauthorized):
    """The caller is authenticated but lacks the right."""

    def __init__(self, right: str, resource: str) -> None:
        super().__init__(right, resource)
        self.right = right
        self.resource = resource

    def text(self) -> str:
        return (
            f"Unauthorized access. '{self.right}' claim(s) are required to perform this operation. "
            f"Resource: '{self.resource}'."
        )


class RoleMissing(Unauthorized):
    """An identity has no role that allows an operation of the management plane."""

    def __init__(self, control: str, resource: str) -> None:
        super().__init__(control, resource)
        self.control = control
        self.resource = resource

    def text(self) -> str:
        return (
            f"The client does not have authorization to perform this action over scope 'sb://{self.resource}': "
            f"no role assignment allows {self.control.replace('_', ' ').lower()}."
        )


class LocalAuthDisabled(Unauthorized):
    """The namespace does not accept SAS credentials."""

    def text(self) -> str:
        return "LocalAuthDisabled: SAS authentication is disabled on this namespace."


class AddressNotAllowed(Unauthorized):
    """The network rules do not allow the caller's address; the text does not reveal the rule."""

    def text(self) -> str:
        return "Unauthorized access. The client's address is not allowed on this namespace."


class ApplicationGroupDisabled(Unauthorized):
    """The application group of the client is disabled."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def text(self) -> str:
        return f"Unauthorized access. The application group '{self.group}' is disabled."


class PublisherRevoked(Unauthorized):
    """The publisher was revoked."""

    def __init__(self, hub: str, publisher: str) -> None:
        super().__init__(hub, publisher)
        self.hub = hub
        self.publisher = publisher

    def text(self) -> str:
        return f"The publisher '{self.publisher}' of event hub '{self.hub}' has been revoked."


def _instant(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(seconds)
