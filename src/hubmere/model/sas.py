"""Making SAS tokens: what a client does with a rule's key. `broker/access.py` verifies them.

A token is `SharedAccessSignature sr=..&sig=..&se=..&skn=..`. The signature is HMAC-SHA256, keyed with the text of the
key, over the encoded resource, a line feed, and the expiry (reference: service 2.1).
"""

import base64
import hmac
from hashlib import sha256
from urllib.parse import quote_plus

SCHEME = "SharedAccessSignature"


def signature_of(resource: str, expiry: str, key: str) -> str:
    """The signature of an encoded resource and an expiry."""
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(errors="replace"), sha256).digest()
    return base64.b64encode(digest).decode()


def make_token(uri: str, rule: str, key: str, *, expires_at_s: int) -> str:
    """A token for a resource and everything below it, as a client would make it."""
    resource = quote_plus(uri)
    signature = quote_plus(signature_of(resource, str(expires_at_s), key))
    return f"{SCHEME} sr={resource}&sig={signature}&se={expires_at_s}&skn={quote_plus(rule)}"
