"""An OAuth issuer for tests: keys, a JWK set, and valid and forged tokens."""

import base64
import hashlib
import hmac
import json
from functools import lru_cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from hubmere.broker.identity.keys import IssuerKeys, read_key_set
from hubmere.broker.identity.tokens import TrustedIssuer

ISSUER = "https://login.example.org/tenant/v2.0"
AUDIENCE = "https://eventhubs.azure.net"
NOW_S = 1_700_000_000
OWNER_ID = "11111111-1111-1111-1111-111111111111"


@lru_cache
def rsa_key(name: str = "first") -> RSAKey:
    """The key of that name, the same in all tests of a run."""
    return RSAKey.generate_key(2048, {"kid": name})


@lru_cache
def ec_key(curve: str = "P-256") -> ECKey:
    """A key on a curve."""
    return ECKey.generate_key(curve, {"kid": f"ec-{curve}"})


@lru_cache
def ed_key() -> OKPKey:
    """An Ed25519 key."""
    return OKPKey.generate_key("Ed25519", {"kid": "ed"})


def jwks(*keys: RSAKey | ECKey | OKPKey) -> str:
    """A JWK set."""
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys or (rsa_key(),)]})


def a_trusted_issuer(**more: Any) -> TrustedIssuer:
    """An issuer with pinned keys."""
    return TrustedIssuer(keys=IssuerKeys(ISSUER, read_key_set(jwks())), **more)


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a token that is valid now; a claim that is set to None is omitted."""
    honest: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "oid": OWNER_ID,
        "sub": OWNER_ID,
        "iat": NOW_S - 10,
        "nbf": NOW_S - 10,
        "exp": NOW_S + 3600,
    }
    return {name: value for name, value in (honest | changes).items() if value is not None}


def token(
    body: dict[str, Any] | None = None,
    *,
    key: RSAKey | ECKey | OKPKey | None = None,
    algorithm: str = "RS256",
    header: dict[str, Any] | None = None,
) -> str:
    """A signed token."""
    signer = key or rsa_key()
    head = {"alg": algorithm, "typ": "JWT", "kid": signer.kid} | (header or {})
    return jwt.encode(head, claims() if body is None else body, signer, algorithms=[algorithm])


def encode(value: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def raw_token(header: bytes, body: bytes, signature: bytes = b"x" * 256) -> str:
    """A token of these three parts, without a valid signature."""
    return f"{encode(header)}.{encode(body)}.{encode(signature)}"


def signed_raw(header: bytes, body: bytes) -> str:
    """A token of these two parts with a valid signature of the issuer."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    content = f"{encode(header)}.{encode(body)}"
    private = rsa_key().private_key
    assert private is not None
    signature = private.sign(content.encode(), PKCS1v15(), SHA256())
    return f"{content}.{encode(signature)}"


def hmac_token(algorithm: str = "HS256") -> str:
    """A token signed by HMAC with the public key as the secret (an algorithm confusion attack)."""
    header = json.dumps({"alg": algorithm, "typ": "JWT", "kid": rsa_key().kid}).encode()
    content = f"{encode(header)}.{encode(json.dumps(claims()).encode())}"
    digest = hmac.new(rsa_key().as_pem(private=False), content.encode(), hashlib.sha256).digest()
    return f"{content}.{encode(digest)}"


def forged(now_s: int = NOW_S) -> dict[str, str]:
    """Tokens that every endpoint must refuse, by their defect."""
    shift = now_s - NOW_S
    times = {"iat": NOW_S - 10 + shift, "nbf": NOW_S - 10 + shift, "exp": NOW_S + 3600 + shift}

    def body(**changes: Any) -> dict[str, Any]:
        return claims(**(times | changes))

    text = json.dumps(body())
    head = json.dumps({"alg": "RS256", "typ": "JWT", "kid": "first"})
    another = RSAKey.import_key(rsa_key("other").as_dict(private=True) | {"kid": "first"})
    good = token(body())
    unsigned = good.rpartition(".")[0]
    return {
        "another key under a known id": token(body(), key=another),
        "an unknown key": token(body(), key=rsa_key("other")),
        "another algorithm in the header": raw_token(head.replace("RS256", "ES256").encode(), text.encode()),
        "no signature (none)": raw_token(b'{"alg":"none","typ":"JWT"}', text.encode(), b"") + "AA",
        "no signature (None)": raw_token(b'{"alg":"None","typ":"JWT"}', text.encode()),
        "an empty signature": unsigned + ".",
        "an HMAC with the public key": hmac_token(),
        "a changed claim": ".".join(
            [good.split(".")[0], encode(text.replace(OWNER_ID, "2" * 36).encode()), good.split(".")[2]]
        ),
        "another audience": token(body(aud="https://storage.azure.com")),
        "the audience of another namespace": token(body(aud="https://elsewhere.servicebus.windows.net")),
        "no audience": token(body(aud=None)),
        "another issuer": token(body(iss="https://login.example.org/other/v2.0")),
        "the issuer with a slash": token(body(iss=ISSUER + "/")),
        "no issuer": token(body(iss=None)),
        "expired": token(body(exp=now_s - 1)),
        "no expiry": token(body(exp=None)),
        "an expiry that is text": token(body(exp=str(now_s + 60))),
        "not valid yet": token(body(nbf=now_s + 600)),
        "huge": token(body(padding="x" * 20_000)),
        "nested": token(body(), header={"cty": "JWT"}),
        "a critical extension": signed_raw(
            b'{"alg":"RS256","typ":"JWT","kid":"first","crit":["exp"],"exp":1}', text.encode()
        ),
        "a key in the header": token(
            body(), key=rsa_key("other"), header={"jwk": rsa_key("other").as_dict(private=False)}
        ),
        "an address of keys": token(body(), key=rsa_key("other"), header={"jku": "https://evil.example.org/keys"}),
        "duplicate claims": signed_raw(head.encode(), (text[:-1] + f', "oid": "{"3" * 36}"' + "}").encode()),
        "a path as key id": token(body(), key=rsa_key("other"), header={"kid": "../../../../dev/null"}),
        "SQL as key id": token(body(), key=rsa_key("other"), header={"kid": "first' OR '1'='1"}),
        "a long key id": token(body(), key=rsa_key("other"), header={"kid": "k" * 300}),
        "no subject": token(body(oid=None, sub=None)),
        "deeply nested claims": signed_raw(head.encode(), b"[" * 5000 + b"]" * 5000),
        "claims that are a list": signed_raw(head.encode(), b"[]"),
        "claims that are no JSON": signed_raw(head.encode(), b"\xff\xfe"),
        "two parts": unsigned,
        "five parts": good + ".AA.AA",
        "padding": good + "=",
        "spaces": good.replace(".", " .", 1),
        "only dots": "..",
    }
