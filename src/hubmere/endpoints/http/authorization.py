"""Parse the `Authorization` header into a credential, and sign its client in.

A header with the scheme `Bearer` shows the administrator's token; anything else is a SAS token (reference: service 2.3,
2.4). The broker verifies both and decides what they allow.
"""

from collections.abc import Callable

from hubmere.broker import AdminToken, Caller, Credential, SharedAccessSignature
from hubmere.model.errors import AdminRequired, InvalidSignature, MissingToken, UnsupportedToken, WrongAdminToken

_BEARER = "bearer"
# A JSON Web Token has three parts (RFC 7519, 3); the administrator's token has no dot.
_JWT_DOTS = 2


def parse_authorization(header: str | None) -> Credential:
    """The credential in a header; refused when there is none."""
    if not header:
        raise MissingToken
    scheme, _, token = header.partition(" ")
    return AdminToken(token) if scheme.lower() == _BEARER else SharedAccessSignature(header)


def sign_in(header: str | None, verify: Callable[[Credential], Caller]) -> Caller:
    """Sign a client in by its header. A bearer token is the administrator's, or a JSON Web Token of an issuer."""
    credential = parse_authorization(header)
    try:
        return verify(credential)
    except InvalidSignature:
        if isinstance(credential, AdminToken):
            is_jwt = credential.text.count(".") == _JWT_DOTS
            raise (UnsupportedToken("Bearer") if is_jwt else WrongAdminToken()) from None
        raise


def sign_in_admin(header: str | None, verify: Callable[[Credential], Caller]) -> Caller:
    """Sign the administrator in, and nobody else."""
    try:
        return verify(parse_authorization(header))
    except InvalidSignature:
        raise AdminRequired from None
