"""Lease: when a gateway may deliver on its claims. No I/O; time is the gateway's own monotonic clock, as an argument.

1. A gateway sends a beat twice a second, and the next one only after the previous came back through the log.
2. It has the lease for LEASE_SECONDS from the moment at which it *sent* the last beat that came back. Reading the log
   proves nothing: a broker that lost its leadership without knowing still answers, but it cannot commit a beat.
3. A claim that it reads back as accepted is granted when every claim that it waits for has been released, or
   GRANT_SECONDS after it was read back. By then the lease of a gateway that has not read it has ended, even if its
   clock runs 2 % slower.
4. A gateway stops delivering at once on a claim that another one has displaced, and on all its claims when it was
   declared dead. It releases a claim when nothing more is delivered on it.
5. A beat that is refused ends the session: the log does not know it. Its first entry was never appended, or it was
   declared dead. No later beat can be accepted, so the gateway begins another session.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from hubmere.cluster.control.entries import Beat, Claim, Entry, Gone, Release, Role
from hubmere.cluster.control.places import Holder, Verdict
from hubmere.cluster.control.state import Outcome

BEAT_SECONDS: Final = 0.5
LEASE_SECONDS: Final = 3.0
# 10 % longer than a lease, because clocks run at different rates.
GRANT_SECONDS: Final = 1.1 * LEASE_SECONDS


class EventKind(Enum):
    """What happened to a claim of this gateway."""

    GRANTED = "granted"
    REFUSED = "refused"
    DISPLACED = "displaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEvent:
    """One event. `others` are the holders that refused the claim, or the one that displaced it."""

    kind: EventKind
    id: str
    others: tuple[Holder, ...] = ()


@dataclass(slots=True)
class _Waiting:
    """An accepted claim that is not granted yet."""

    waits_for: set[str] = field(default_factory=set)
    grant_at: float = 0.0


class Lease:
    """The claims of one session of a gateway. Thread rule: one owner."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.is_gone = False
        self._sent_beat: tuple[int, float] | None = None
        self._next_beat = 1
        self._next_beat_at = 0.0
        self._proven_at: float | None = None
        self._waiting: dict[str, _Waiting] = {}
        self._accepted: set[str] = set()

    # --- beats

    def beat(self, now: float) -> Beat | None:
        """The beat that is due, if one is; the caller sends it now."""
        if self.is_gone or self._sent_beat is not None or now < self._next_beat_at:
            return None
        beat = Beat(session=self.session, number=self._next_beat)
        self._sent_beat = (beat.number, now)
        self._next_beat += 1
        self._next_beat_at = now + BEAT_SECONDS
        return beat

    def on_beat_failed(self, number: int) -> None:
        """A beat was not appended; another one may be sent."""
        if self._sent_beat is not None and self._sent_beat[0] == number:
            self._sent_beat = None

    def is_held(self, now: float) -> bool:
        """Whether the gateway may deliver on its claims."""
        return not self.is_gone and self._proven_at is not None and now - self._proven_at < LEASE_SECONDS

    # --- the log

    def observe(self, entry: Entry, outcome: Outcome, now: float) -> list[ClaimEvent]:
        """Process an entry that was read and applied; returns the events of claims of this gateway."""
        match entry:
            case Beat() if entry.session == self.session:
                return self._on_beat(entry, outcome)
            case Gone() if entry.session == self.session and outcome.verdict is Verdict.ACCEPTED:
                return self._on_gone()
            case Claim() | Role():
                return self._on_claim(entry, outcome, now)
            case Release():
                return self._on_release(entry.id)
        return []

    def advance(self, now: float) -> list[ClaimEvent]:
        """Grant the claims that have waited long enough."""
        due = [claim_id for claim_id, waiting in self._waiting.items() if now >= waiting.grant_at]
        return [self._grant(claim_id) for claim_id in due]

    def forget(self, claim_id: str) -> None:
        """This gateway gives up a claim; there are no more events of it."""
        self._waiting.pop(claim_id, None)
        self._accepted.discard(claim_id)

    def _on_beat(self, beat: Beat, outcome: Outcome) -> list[ClaimEvent]:
        if outcome.verdict is Verdict.REFUSED:
            return self._on_gone()
        if self._sent_beat is not None and self._sent_beat[0] == beat.number:
            self._proven_at = self._sent_beat[1]
            self._sent_beat = None
        return []

    def end(self) -> list[ClaimEvent]:
        """This gateway gives up all its claims: it begins another session."""
        return self._on_gone()

    def _on_gone(self) -> list[ClaimEvent]:
        self.is_gone = True
        lost = [*self._accepted]
        self._accepted.clear()
        self._waiting.clear()
        return [ClaimEvent(kind=EventKind.DISPLACED, id=claim_id) for claim_id in lost]

    def _on_claim(self, claim: Claim | Role, outcome: Outcome, now: float) -> list[ClaimEvent]:
        assert outcome.claim is not None
        events = []
        if outcome.verdict is Verdict.ACCEPTED:
            new = Holder(
                id=claim.id,
                session=claim.session,
                epoch=claim.epoch if isinstance(claim, Claim) else None,
                name=claim.name if isinstance(claim, Claim) else claim.session,
            )
            events = [self._displace(old.id, new) for old in outcome.claim.displaced if old.id in self._accepted]
        if claim.session != self.session:
            return events
        if outcome.verdict is Verdict.REFUSED:
            return [ClaimEvent(kind=EventKind.REFUSED, id=claim.id, others=outcome.claim.holders)]
        self._accepted.add(claim.id)
        self._waiting[claim.id] = _Waiting(set(outcome.claim.waits_for), now + GRANT_SECONDS)
        return events if outcome.claim.waits_for else [*events, self._grant(claim.id)]

    def _displace(self, claim_id: str, new: Holder) -> ClaimEvent:
        self.forget(claim_id)
        return ClaimEvent(kind=EventKind.DISPLACED, id=claim_id, others=(new,))

    def _on_release(self, released: str) -> list[ClaimEvent]:
        ready = []
        for claim_id, waiting in self._waiting.items():
            if released in waiting.waits_for:
                waiting.waits_for.discard(released)
                if not waiting.waits_for:
                    ready.append(claim_id)
        return [self._grant(claim_id) for claim_id in ready]

    def _grant(self, claim_id: str) -> ClaimEvent:
        del self._waiting[claim_id]
        return ClaimEvent(kind=EventKind.GRANTED, id=claim_id)
