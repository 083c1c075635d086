"""SAS tokens: their format, how clients make them, and how they are parsed. `broker.access` verifies them.

A token is `SharedAccessSignature sr=..&sig=..&se=..&skn=..`. The signature is HMAC-SHA256, keyed with the text of the
key, over `sr` exactly as it stands in the token, a line feed, and `se` (reference: service 2.1). Nothing is re-encoded
before it is verified; `sr` is decoded only to find out which resources it covers.
"""

import base64
import hmac
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote_plus, unquote, unquote_plus

from hubmere.model.errors import MalformedToken
from hubmere.model.names import fold

SCHEME = "SharedAccessSignature"
# The longest token in use carries a publisher path of a few hundred characters; a bound for unauthenticated peers.
MAX_TOKEN_CHARACTERS = 8192
# Seconds since 1970 in 18 digits reach far beyond any calendar and still fit a 64-bit integer.
_MAX_EXPIRY_DIGITS = 18


def signature_of(resource: str, expiry: str, key: str) -> str:
    """The signature of an encoded resource and an expiry."""
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(errors="replace"), sha256).digest()
    return base64.b64encode(digest).decode()


def make_token(uri: str, rule: str, key: str, *, expires_at_s: int) -> str:
    """A token for a resource and everything below it, as a client would make it."""
    resource = quote_plus(uri)
    signature = quote_plus(signature_of(resource, str(expires_at_s), key))
    return f"{SCHEME} sr={resource}&sig={signature}&se={expires_at_s}&skn={quote_plus(rule)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A SAS token. `resource` and `expiry` are the signed texts exactly as they arrived."""

    resource: str
    expiry: str
    rule: str
    signature: str

    @classmethod
    def parse(cls, text: str) -> "Token":
        """Parse a token; fields may come in any order, and unknown ones are ignored."""
        if len(text) > MAX_TOKEN_CHARACTERS:
            raise MalformedToken(f"A token has at most {MAX_TOKEN_CHARACTERS} characters.")
        scheme, _, rest = text.strip().partition(" ")
        if fold(scheme) != fold(SCHEME):
            raise MalformedToken(f"A token begins with '{SCHEME} '.")
        fields = _fields(rest.strip())
        missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
        if missing:
            raise MalformedToken(f"The token lacks '{missing[0]}'.")
        expiry = fields["se"]
        if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= _MAX_EXPIRY_DIGITS):
            raise MalformedToken("The token's 'se' is not a number of seconds since 1970.")
        return cls(
            resource=fields["sr"], expiry=expiry, rule=unquote_plus(fields["skn"]), signature=unquote(fields["sig"])
        )

    @property
    def expires_at_s(self) -> int:
        """When the token expires, in seconds since 1970."""
        return int(self.expiry)

    def is_signed_with(self, key: str) -> bool:
        """Whether the token was signed with this key."""
        wanted = signature_of(self.resource, self.expiry, key)
        return hmac.compare_digest(wanted.encode(), self.signature.encode(errors="replace"))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split("&"):
        name, _, value = part.partition("=")
        if name in fields:
            raise MalformedToken("The token has a field twice.")
        fields[name] = value
    return fields


def split_audience(resource: str) -> tuple[str, str]:
    """Host and path of a resource URI, folded: without scheme, port, query and superfluous slashes.

    1. A resource without a literal `/` behind its scheme is URL-encoded as a whole, as the service asks for, and is
       decoded. One that has a literal `/` was left as it is by its client.
    2. The URI is split into segments, and each is decoded once, as the path of a request is: a publisher `dev 01` is
       written `dev%2001`. A slash that was encoded inside a segment stays encoded, so that it never separates two.
    """
    is_plain = "/" in resource.rpartition("://")[2]
    uri = resource if is_plain else _decode(resource.replace("+", " "))
    _, found, rest = uri.partition("://")
    authority, _, path = (rest if found else uri).partition("?")[0].lstrip("/").partition("/")
    host = authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]
    segments = (_decode(segment).replace("/", "%2f") for segment in path.split("/") if segment)
    return fold(host), fold("/".join(segments))


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise MalformedToken("The token's 'sr' is not UTF-8.") from None
