"""Who reads a partition in a consumer group, over all gateways: the epoch rules as a state machine.

A place is a partition in a consumer group, or a role. It has holders, and claims that must leave: those that were
displaced by a higher epoch, or whose gateway was declared dead, and that have not been released. Such a claim does not
cause a new claim to be refused, but the new reader gets no events before it is released: its gateway may still be
delivering. The rules:

1. A claim with an epoch is refused below the holder's epoch; otherwise it displaces every holder.
2. A claim without an epoch is refused where a holder has one, and above the limit of readers.
3. A role is refused while it has a holder.
4. An accepted claim may deliver once every claim that was leaving when it was accepted has been released. At the latest
   it may deliver after the lease time, when a gateway that is cut off has stopped by itself (`lease`).
"""

from dataclasses import dataclass, field
from enum import Enum

from hubmere.cluster.control.entries import Claim, Role


class Verdict(Enum):
    """The result of an entry."""

    ACCEPTED = "accepted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An accepted claim."""

    id: str
    session: str
    epoch: int | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOutcome:
    """The decision on one claim.

    `waits_for` are the ids of claims that must be released first; `displaced` are the holders that this claim has
    displaced; `holders` are those because of which it was refused.
    """

    verdict: Verdict
    waits_for: tuple[str, ...] = ()
    displaced: tuple[Holder, ...] = ()
    holders: tuple[Holder, ...] = ()


@dataclass(slots=True)
class Place:
    """The holders of one place, and the claims that must leave it."""

    holders: list[Holder] = field(default_factory=list)
    leaving: list[Holder] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there are neither holders nor leaving claims."""
        return not self.holders and not self.leaving

    def claim(self, claim: Claim) -> ClaimOutcome:
        """Decide on a claim by the epoch rules."""
        owner = next((holder for holder in self.holders if holder.epoch is not None), None)
        if owner is not None and owner.epoch is not None and (claim.epoch is None or claim.epoch < owner.epoch):
            return ClaimOutcome(verdict=Verdict.REFUSED, holders=(owner,))
        is_full = claim.limit is not None and len(self.holders) >= claim.limit
        if claim.epoch is None and is_full:
            return ClaimOutcome(verdict=Verdict.REFUSED, holders=tuple(self.holders))
        displaced = tuple(self.holders) if claim.epoch is not None else ()
        if displaced:
            self.leaving += displaced
            self.holders.clear()
        self.holders.append(Holder(id=claim.id, session=claim.session, epoch=claim.epoch, name=claim.name))
        return ClaimOutcome(verdict=Verdict.ACCEPTED, waits_for=self._waits_for(), displaced=displaced)

    def take(self, role: Role) -> ClaimOutcome:
        """Decide on a role."""
        if self.holders:
            return ClaimOutcome(verdict=Verdict.REFUSED, holders=tuple(self.holders))
        self.holders.append(Holder(id=role.id, session=role.session, epoch=None, name=role.session))
        return ClaimOutcome(verdict=Verdict.ACCEPTED, waits_for=self._waits_for())

    def release(self, claim_id: str) -> None:
        """Forget a claim; unknown ones are ignored."""
        self.holders = [holder for holder in self.holders if holder.id != claim_id]
        self.leaving = [holder for holder in self.leaving if holder.id != claim_id]

    def lose(self, session: str) -> None:
        """The gateway of some claims was declared dead: they must leave."""
        self.leaving += [holder for holder in self.holders if holder.session == session]
        self.holders = [holder for holder in self.holders if holder.session != session]

    def forget(self, session: str) -> list[str]:
        """Forget every claim of a gateway; returns their ids."""
        forgotten = [holder.id for holder in (*self.holders, *self.leaving) if holder.session == session]
        self.holders = [holder for holder in self.holders if holder.session != session]
        self.leaving = [holder for holder in self.leaving if holder.session != session]
        return forgotten

    def _waits_for(self) -> tuple[str, ...]:
        return tuple(holder.id for holder in self.leaving)
