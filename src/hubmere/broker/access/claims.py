"""Claims: the principals that a client has proved, and which of them allows a request.

A client with one credential has one claim. An AMQP client proves rights one after another over `$cbs` and collects
claims. Nothing here verifies a credential (`access`) or looks up a hub (`caller`).
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from hubmere.broker.access.authentication import Principal
from hubmere.broker.access.resources import Resource
from hubmere.broker.access.revocation import Judge
from hubmere.model.entity import Rights
from hubmere.model.errors import HubNotFound, InvalidAudience, LimitReached, Refusal
from hubmere.model.security.sas import split_audience

# The most careful clients send one token per hub, group and partition that a connection uses.
MAX_CLAIMS: Final = 1024


class Claims:
    """The claims of a client; mostly one or two."""

    __slots__ = ("_claims",)

    def __init__(self, *claims: Principal) -> None:
        # A tuple of one or two takes a third of the memory of a dictionary.
        self._claims: tuple[Principal, ...] = claims

    def __iter__(self) -> Iterator[Principal]:
        return iter(self._claims)

    def __len__(self) -> int:
        return len(self._claims)

    def add(self, principal: Principal) -> None:
        """Keep a claim; it replaces an older one of the same scope."""
        others = tuple(claim for claim in self._claims if claim.scope != principal.scope)
        if len(others) >= MAX_CLAIMS:
            raise LimitReached("tokens on a connection", MAX_CLAIMS)
        self._claims = (*others, principal)

    def replace(self, principal: Principal) -> None:
        """Keep this claim only."""
        self._claims = (principal,)

    def keeps_open(self, right: Rights, resource: Resource, now_s: float) -> bool:
        """Whether an open link may stay open: an unexpired claim gives one of the rights on the resource."""
        return any(claim.may(right, resource) and not claim.is_expired(now_s) for claim in self._claims)

    def find(self, right: Rights, resource: Resource, now_s: float) -> Principal | None:
        """The claim that allows something new; a claim whose key was rotated allows nothing new."""
        for claim in self._claims:
            if claim.may(right, resource) and not claim.is_rotated and not claim.is_expired(now_s):
                return claim
        return None

    def review(self, judge: Judge, now_s: float) -> Refusal | None:
        """Drop the claims that the rules in force no longer allow; returns why the last of them was dropped."""
        kept: list[Principal] = []
        why: Refusal | None = None
        for claim in self._claims:
            try:
                kept.append(judge(claim, now_s))
            except Refusal as refusal:
                why = refusal
        self._claims = tuple(kept)
        return why

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the authorization rules behind the claims, each once."""
        return tuple(dict.fromkeys(claim.rule for claim in self._claims))

    def next_expiry(self, after_s: float) -> float | None:
        """When the next claim expires that has not expired yet."""
        times = (claim.expires_at_s for claim in self._claims)
        return min((time for time in times if time is not None and time > after_s), default=None)


def is_same_holder(one: Principal, other: Principal) -> bool:
    """Whether two principals have the same identity, whatever their rights and their expiry."""
    return _holder(one) == _holder(other)


def _holder(principal: Principal) -> tuple[str, ...]:
    identity = principal.identity
    issuer = "" if identity is None else identity.issuer
    return principal.namespace, principal.rule, principal.hub, issuer


def limit_to_audience(principal: Principal, audience: str, hubs: Collection[str]) -> Principal:
    """The principal limited to the address for which a client presents its token; `hubs` are folded names.

    The audience must be in the scope of the token, and a hub in it must exist.
    """
    host, path = split_audience(audience)
    hub = _hub_of_path(path, hubs)
    resource = Resource(principal.namespace, hub or path.partition("/")[0], path, is_messages=True)
    if not principal.is_admin and not principal.is_in_scope(resource):
        raise InvalidAudience(f"{principal.namespace}/{principal.scope or principal.hub}".rstrip("/"), str(resource))
    if path and hub is None:
        raise HubNotFound(f"sb://{host or principal.namespace}/{path.partition('/')[0]}")
    # A token for the messages of the audience covers less than the audience, and is kept as it is.
    return principal if len(principal.scope) > len(path) else replace(principal, scope=path)


def _hub_of_path(path: str, hubs: Collection[str]) -> str | None:
    """The folded name of the hub in which a path lies: the longest one that fits, since names may contain '/'."""
    segments = path.split("/")
    names = ("/".join(segments[:count]) for count in range(len(segments), 0, -1))
    return next((name for name in names if name in hubs), None)
