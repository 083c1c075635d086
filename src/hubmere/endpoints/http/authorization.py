"""Parse the `Authorization` header into a credential, and sign its client in.

A header with the scheme `Bearer` has a token of an OAuth issuer (a JWT), or the administrator's token, which has no
dots. Anything else is a SAS token (reference: service 2.3, 2.4). The broker verifies them and decides what they allow.
"""

from collections.abc import Callable

from hubmere.broker import AdminToken, BearerToken, Caller, Credential, SharedAccessSignature
from hubmere.model.errors import AdminRequired, InvalidSignature, MissingToken, WrongAdminToken

_BEARER = "bearer"


def parse_authorization(header: str | None) -> Credential:
    """The credential in a header; refused when there is none."""
    if not header:
        raise MissingToken
    scheme, _, token = header.partition(" ")
    if scheme.lower() != _BEARER:
        return SharedAccessSignature(header)
    token = token.strip()
    return BearerToken(token) if "." in token else AdminToken(token)


def sign_in(header: str | None, verify: Callable[[Credential], Caller]) -> Caller:
    """Sign a client in by its header. A bearer token is the administrator's, or a JSON Web Token of an issuer."""
    credential = parse_authorization(header)
    try:
        return verify(credential)
    except InvalidSignature:
        if isinstance(credential, AdminToken):
            raise WrongAdminToken from None
        raise


def sign_in_admin(header: str | None, verify: Callable[[Credential], Caller]) -> Caller:
    """Sign the administrator in, and nobody else."""
    try:
        return verify(parse_authorization(header))
    except InvalidSignature:
        raise AdminRequired from None
