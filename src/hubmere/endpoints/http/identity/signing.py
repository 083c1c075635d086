"""Tokens of the local issuer: its key, its JWK set, and what is in the tokens of applications and users."""

import hashlib
import json
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from hubmere.endpoints.http.identity.directory import Application, User
from hubmere.model.clock import Clock

TOKEN_SECONDS = 3600
# The federated token is written again at every start.
FEDERATED_SECONDS = 30 * 86_400
# The audience of a federated token in Entra ID.
FEDERATED_AUDIENCE = "api://AzureADTokenExchange"
_ALGORITHM = "RS256"
_KEY_BITS = 2048


def generate_key() -> bytes:
    """A new private key in PEM form."""
    return RSAKey.generate_key(_KEY_BITS, private=True).as_pem(private=True)


class Signer:
    """Signs tokens. Thread rule: the node's loop only."""

    def __init__(self, key: bytes, issuer: str, clock: Clock) -> None:
        self._key = RSAKey.import_key(key)
        self._key_id = hashlib.sha256(self._key.as_pem(private=False)).hexdigest()[:16]
        self._clock = clock
        self.issuer = issuer

    @property
    def key_set(self) -> str:
        """The JWK set with the public key."""
        public = self._key.as_dict(private=False)
        return json.dumps({"keys": [public | {"kid": self._key_id, "use": "sig", "alg": _ALGORITHM}]})

    def access_token(self, holder: Application | User, audience: str, application: str) -> str:
        """A token with which the holder uses a resource; `application` is the one that asked for it."""
        claims: dict[str, Any] = {
            "aud": audience,
            "oid": holder.object_id,
            "sub": holder.object_id,
            "appid": application,
            "ver": "1.0",
        }
        if isinstance(holder, Application):
            claims["idtyp"] = "app"
        else:
            claims |= {"idtyp": "user", "upn": holder.name, "sub": f"{holder.object_id}.{application}"}
        if holder.groups:
            claims["groups"] = list(holder.groups)
        return self._sign(claims, TOKEN_SECONDS)

    def id_token(self, user: User, application: str, nonce: str = "") -> str:
        """The token that names the signed-in user to an application."""
        name = {"preferred_username": user.name, "name": user.name, "tid": "adfs"}
        own = {"aud": application, "sub": user.object_id, "oid": user.object_id}
        return self._sign(own | name | ({"nonce": nonce} if nonce else {}), TOKEN_SECONDS)

    def federated_token(self, application: Application) -> str:
        """The token by which a workload proves that it is the application."""
        return self._sign({"aud": FEDERATED_AUDIENCE, "sub": application.client_id}, FEDERATED_SECONDS)

    def is_federated(self, token: str, application: Application) -> bool:
        """Whether a token is the federated token of an application."""
        try:
            claims = jwt.decode(token, self._key, algorithms=[_ALGORITHM]).claims
        except (JoseError, ValueError, TypeError):
            return False
        wanted = {"iss": self.issuer, "aud": FEDERATED_AUDIENCE, "sub": application.client_id}
        is_ours = all(claims.get(name) == value for name, value in wanted.items())
        return is_ours and int(claims.get("exp", 0)) > self._now_s

    def _sign(self, claims: dict[str, Any], seconds: int) -> str:
        now = self._now_s
        times = {"iss": self.issuer, "iat": now, "nbf": now, "exp": now + seconds}
        header = {"alg": _ALGORITHM, "typ": "JWT", "kid": self._key_id}
        return jwt.encode(header, claims | times, self._key, algorithms=[_ALGORITHM])

    @property
    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000
