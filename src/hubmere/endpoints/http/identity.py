"""Who asks over HTTP: a SAS token of a namespace, or the administrator's token.

The network rules of the namespace come first, then the credential (reference: service 2.3, 2.4). What a SAS token
proved is remembered until an entity changes or the token expires, since a device sends the same one with every event.
"""

import hmac

from hubmere.broker.access import Principal, Resource
from hubmere.broker.broker import Broker
from hubmere.broker.live import LiveNamespace
from hubmere.broker.network import require_address
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import AdminRequired, MissingToken, UnsupportedToken

_BEARER = "bearer "
# Tokens whose proof is remembered: one per device that is sending now; each entry is under 1 KB.
_REMEMBERED_TOKENS = 4096


class Identity:
    """Turns an Authorization header into a Principal.

    Thread rule: the node's loop only.
    """

    def __init__(self, broker: Broker, clock: Clock, admin_token: str) -> None:
        self._broker = broker
        self._clock = clock
        self._admin_token = admin_token.encode()
        self._known: dict[tuple[str, str], tuple[int, Principal]] = {}

    def of_data(self, namespace: LiveNamespace, peer: str, authorization: str | None) -> Principal:
        """Who asks something of a namespace: the address is checked before the credential."""
        require_address(namespace.entity, peer)
        return self._principal(namespace, authorization)

    def of_manager(self, namespace: LiveNamespace | None, authorization: str | None) -> Principal:
        """Who manages over ARM: the administrator, or a holder of Manage on the namespace that is named.

        Network rules do not bind this plane, or nobody could repair a rule that locks everybody out.
        """
        principal = self._principal(namespace, authorization)
        if not principal.is_admin:
            assert namespace is not None
            principal.require(Rights.MANAGE, Resource.of_namespace(namespace.entity.name))
        return principal

    def require_admin(self, authorization: str | None) -> Principal:
        """The administrator and nobody else."""
        if not authorization:
            raise MissingToken
        if not self._is_admin(authorization):
            raise AdminRequired
        return Principal.admin()

    def _principal(self, namespace: LiveNamespace | None, authorization: str | None) -> Principal:
        if not authorization:
            raise MissingToken
        if authorization[: len(_BEARER)].lower() == _BEARER:
            if self._is_admin(authorization):
                return Principal.admin()
            raise UnsupportedToken("Bearer")
        if namespace is None:
            raise AdminRequired
        return self._by_sas(namespace, authorization)

    def _is_admin(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode(errors="replace")
        return hmac.compare_digest(given, self._admin_token) and scheme.lower() == _BEARER.strip()

    def _by_sas(self, namespace: LiveNamespace, token: str) -> Principal:
        now_s = self._clock.now_ms() / 1000
        version = self._broker.catalog.view.version
        key = (namespace.entity.name, token)
        remembered = self._known.get(key)
        if remembered is not None and remembered[0] == version and not remembered[1].is_expired(now_s):
            return remembered[1]
        principal = self._broker.access.by_token(namespace.entity, token, now_s)
        if len(self._known) >= _REMEMBERED_TOKENS:
            self._known.pop(next(iter(self._known)))
        self._known[key] = (version, principal)
        return principal
