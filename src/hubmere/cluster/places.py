"""ClusterPlaces: places of exclusive readers over the control log (`control.places` has the rules).

A claim is appended to the log, and granted or refused when it is read back. A granted place waits a few seconds for the
reader that asked for it; a client that has gone meanwhile loses it again.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from hubmere.cluster.control.entries import Claim
from hubmere.cluster.control.lease import ClaimEvent, EventKind
from hubmere.cluster.control.places import Holder
from hubmere.cluster.control_log import ControlLog
from hubmere.model.errors import ClusterBusy, EpochRequired, EpochTooLow, ReaderStolen, ReceiverLimit, Refusal

# How long a granted place waits for its reader, which takes it in the same turn unless its client has gone.
_UNUSED_SECONDS: Final = 5.0
# How long a claim waits for the control log before it is refused as busy.
ANSWER_SECONDS: Final = 10.0

# The ids of claims that are roles begin with this; `roles` has them.
ROLE_ID: Final = "role-"

OnLost = Callable[[Refusal], None]


class ReaderRequest(Protocol):
    """What a reader asks for (`broker.places.PlaceRequest`)."""

    @property
    def hub_uid(self) -> str:
        """The hub."""

    @property
    def group(self) -> str:
        """The consumer group."""

    @property
    def partition(self) -> int:
        """The partition."""

    @property
    def epoch(self) -> int | None:
        """The epoch; None to share the place."""

    @property
    def name(self) -> str:
        """The reader's name."""

    @property
    def limit(self) -> int | None:
        """Readers without an epoch that may share the place."""


_Key = tuple[str, str, int, int | None, str]


@dataclass(slots=True, eq=False)
class _OwnClaim:
    """One claim of this gateway."""

    id: str
    key: _Key
    limit: int | None
    on_answer: Callable[[], None] | None
    refusal: Refusal | None = None
    on_lost: OnLost | None = None
    unused: asyncio.TimerHandle | None = None
    overdue: asyncio.TimerHandle | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch of the reader."""
        return self.key[3]


class ClusterPlace:
    """A place that was granted to one reader."""

    __slots__ = ("_claim", "_places")

    def __init__(self, places: "ClusterPlaces", claim: _OwnClaim) -> None:
        self._places = places
        self._claim = claim

    @property
    def may_deliver(self) -> bool:
        """Whether this gateway has proved to the others, less than a lease ago, that it is alive.

        Readers without an epoch share their partition: they go on while the control log cannot be reached.
        """
        return self._claim.epoch is None or self._places.has_lease

    def hold(self, on_lost: OnLost) -> None:
        """A reader uses the place from now on."""
        self._claim.on_lost = on_lost

    def release(self) -> None:
        """Give the place back."""
        self._places.release(self._claim)


@dataclass(slots=True)
class _Answers:
    """Decided claims that wait for their readers."""

    ready: deque[_OwnClaim] = field(default_factory=deque)


class ClusterPlaces:
    """The places of one gateway's readers. Thread rule: the loop's thread only."""

    def __init__(self, control: ControlLog) -> None:
        self._control = control
        self._claims: dict[str, _OwnClaim] = {}
        self._answers: dict[_Key, _Answers] = {}
        control.listen_to_claims(self._on_event)

    @property
    def has_lease(self) -> bool:
        """Whether this gateway may deliver."""
        return self._control.has_lease

    def take(self, request: ReaderRequest, on_answer: Callable[[], None]) -> ClusterPlace | None:
        """A place that was granted; None while the claim is not decided. Raises the refusal if it was refused."""
        key = (request.hub_uid, request.group, request.partition, request.epoch, request.name)
        answers = self._answers.get(key)
        if answers is not None and answers.ready:
            claim = answers.ready.popleft()
            if not answers.ready:
                del self._answers[key]
            if claim.unused is not None:
                claim.unused.cancel()
            if claim.refusal is not None:
                raise claim.refusal
            return ClusterPlace(self, claim)
        self._claim(key, request.limit, on_answer)
        return None

    def _claim(self, key: _Key, limit: int | None, on_answer: Callable[[], None]) -> None:
        if self._control.failure is not None:
            raise ClusterBusy(self._control.failure)
        uid, group, partition, epoch, name = key
        claim = _OwnClaim(secrets.token_hex(8), key, limit, on_answer)
        self._claims[claim.id] = claim
        entry = Claim(
            id=claim.id,
            session=self._control.lease.session,
            place=f"{uid}/{partition}/{group}",
            epoch=epoch,
            name=name,
            limit=limit,
        )
        claim.overdue = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._on_not_appended, claim)
        self._control.append(entry, lambda: self._on_not_appended(claim))

    def release(self, claim: _OwnClaim) -> None:
        """Give a claim back; doing it twice is harmless."""
        if self._claims.pop(claim.id, None) is not None:
            self._control.lease.forget(claim.id)
            self._control.release(claim.id)

    # --- events of the control log

    def _on_not_appended(self, claim: _OwnClaim) -> None:
        """The claim may not have been appended. If it was, it is released when it is read."""
        self._answer(claim, ClusterBusy("the control log of the cluster does not answer"))

    def _on_event(self, event: ClaimEvent) -> None:
        if event.id.startswith(ROLE_ID):
            return
        claim = self._claims.get(event.id)
        if claim is None:
            if event.kind is not EventKind.REFUSED:
                # Nobody waits for it any more.
                self._control.lease.forget(event.id)
                self._control.release(event.id)
        elif event.kind is EventKind.GRANTED:
            self._answer(claim, None)
        elif event.kind is EventKind.REFUSED:
            self._answer(claim, _refusal(claim, event.others))
        else:
            self._lose(claim, event.others)

    def _answer(self, claim: _OwnClaim, refusal: Refusal | None) -> None:
        on_answer, claim.on_answer = claim.on_answer, None
        if claim.overdue is not None:
            claim.overdue.cancel()
        if on_answer is None:
            return
        claim.refusal = refusal
        if refusal is not None:
            self._claims.pop(claim.id, None)
        self._answers.setdefault(claim.key, _Answers()).ready.append(claim)
        claim.unused = asyncio.get_running_loop().call_later(_UNUSED_SECONDS, self._on_unused, claim)
        on_answer()

    def _on_unused(self, claim: _OwnClaim) -> None:
        answers = self._answers.get(claim.key)
        if answers is not None and claim in answers.ready:
            answers.ready.remove(claim)
            if not answers.ready:
                del self._answers[claim.key]
            self.release(claim)

    def _lose(self, claim: _OwnClaim, others: tuple[Holder, ...]) -> None:
        """Stop the reader first, then release the claim."""
        epoch, name = claim.epoch, claim.key[4]
        refusal: Refusal = ClusterBusy("this gateway was cut off from its cluster")
        if others and others[0].epoch is not None:
            refusal = ReaderStolen(new_epoch=others[0].epoch, new_name=others[0].name, epoch=epoch, name=name)
        on_lost, claim.on_lost = claim.on_lost, None
        self._claims.pop(claim.id, None)
        try:
            if on_lost is not None:
                on_lost(refusal)
            else:
                claim.refusal = refusal
                self._answer(claim, refusal)
        finally:
            self._control.release(claim.id)


def _refusal(claim: _OwnClaim, holders: tuple[Holder, ...]) -> Refusal:
    """The same refusal as on a single node."""
    epoch, name = claim.epoch, claim.key[4]
    owner = next((holder for holder in holders if holder.epoch is not None), None)
    if owner is not None and owner.epoch is not None:
        if epoch is None:
            return EpochRequired(owner.epoch)
        return EpochTooLow(current=owner.epoch, requested=epoch, current_name=owner.name, name=name)
    if holders and claim.limit is not None:
        return ReceiverLimit(claim.limit, [holder.name for holder in holders])
    return ClusterBusy("this gateway begins a new session with its cluster")
