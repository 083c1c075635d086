"""ControlState: the state that all gateways share. `apply` is deterministic and reads no clock: time is the order of
the log.

It knows nothing of hubs or tiers. Rows are texts by key, with the offset of the entry that wrote them as their version;
so gateways of two releases apply every entry in the same way.

A gateway is alive while it beats. It is declared dead (`Gone`) if another gateway has beaten MISSED_BEATS times since
its last beat. Its claims then have to be released; the state forgets them after FORGOTTEN_BEATS further beats of any
one gateway, when its lease has certainly ended.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hubmere.cluster.control.entries import (
    Beat,
    Change,
    Checkpoint,
    Claim,
    Entry,
    Gone,
    Leave,
    Release,
    Role,
    Session,
    Snapshot,
)
from hubmere.cluster.control.places import ClaimOutcome, Holder, Place, Verdict

# A gateway beats twice a second, so six beats of another one are three seconds of silence.
MISSED_BEATS: Final = 6
# A dead gateway's last beat is valid for three seconds; twelve beats take six.
FORGOTTEN_BEATS: Final = 12


@dataclass(slots=True, kw_only=True)
class Member:
    """One gateway. `heard` counts the beats of each other gateway since this one's last beat, or since its death."""

    session: str
    address: str
    version: str
    began_at: int
    is_gone: bool = False
    heard: dict[str, int] = field(default_factory=dict)

    @property
    def silence(self) -> int:
        """The most beats of any one other gateway since this one's last beat."""
        return max(self.heard.values(), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The effect of an entry; `claim` is the decision on a claim."""

    verdict: Verdict
    claim: ClaimOutcome | None = None


_ACCEPTED: Final = Outcome(verdict=Verdict.ACCEPTED)
_REFUSED: Final = Outcome(verdict=Verdict.REFUSED)


class ControlState:
    """The state after a prefix of the control log. Thread rule: one owner."""

    def __init__(self) -> None:
        # The offset of the next entry.
        self.next_offset = 0
        self.rows: dict[str, tuple[int, str]] = {}
        self.members: dict[str, Member] = {}
        self.places: dict[str, Place] = {}
        self._place_of_claim: dict[str, str] = {}
        # The last checkpoint, and the last snapshot that was written.
        self.checkpoint_at = -1
        self.snapshot: Snapshot | None = None

    def version_of(self, key: str) -> int:
        """The version of a row: one more than the offset of the entry that wrote it, 0 if it does not exist."""
        row = self.rows.get(key)
        return 0 if row is None else row[0]

    def alive(self) -> list[Member]:
        """The gateways that are not declared dead, in the order in which they began."""
        return sorted((member for member in self.members.values() if not member.is_gone), key=lambda m: m.began_at)

    def silent_sessions(self, asking: str) -> list[str]:
        """The gateways that may be declared dead now."""
        silent = (member for member in self.alive() if member.silence >= MISSED_BEATS)
        return [member.session for member in silent if member.session != asking]

    def apply(self, offset: int, entry: Entry) -> Outcome:
        """Apply the entry at an offset; every gateway gets the same outcome."""
        self.next_offset = offset + 1
        match entry:
            case Change():
                return self._change(offset, entry)
            case Claim():
                return self._claim(entry)
            case Role():
                return self._role(entry)
            case Release():
                self._release(entry.id)
                return _ACCEPTED
            case Session():
                self.members[entry.session] = Member(
                    session=entry.session, address=entry.address, version=entry.version, began_at=offset
                )
                return _ACCEPTED
            case Beat():
                return self._beat(entry)
            case Gone():
                return self._remove_gone(entry)
            case Leave():
                self._forget(entry.session)
                return _ACCEPTED
            case Checkpoint():
                self.checkpoint_at = offset
                return _ACCEPTED
            case Snapshot():
                self.snapshot = entry
                return _ACCEPTED

    def _change(self, offset: int, change: Change) -> Outcome:
        if any(self.version_of(condition.key) != condition.version for condition in change.conditions):
            return _REFUSED
        for write in change.writes:
            if write.value is None:
                self.rows.pop(write.key, None)
            else:
                self.rows[write.key] = (offset + 1, write.value)
        return _ACCEPTED

    def _is_alive(self, session: str) -> bool:
        member = self.members.get(session)
        return member is not None and not member.is_gone

    def _claim(self, claim: Claim) -> Outcome:
        # A gateway that was declared dead may not know it yet: its claims must not displace others.
        if not self._is_alive(claim.session):
            return Outcome(verdict=Verdict.REFUSED, claim=ClaimOutcome(verdict=Verdict.REFUSED))
        return self._note_claim(claim.id, claim.place, self._place(claim.place).claim(claim))

    def _role(self, role: Role) -> Outcome:
        if not self._is_alive(role.session):
            return Outcome(verdict=Verdict.REFUSED, claim=ClaimOutcome(verdict=Verdict.REFUSED))
        return self._note_claim(role.id, role.place, self._place(role.place).take(role))

    def _note_claim(self, claim_id: str, place: str, outcome: ClaimOutcome) -> Outcome:
        if outcome.verdict is Verdict.ACCEPTED:
            self._place_of_claim[claim_id] = place
        return Outcome(verdict=outcome.verdict, claim=outcome)

    def _place(self, name: str) -> Place:
        return self.places.setdefault(name, Place())

    def _release(self, claim_id: str) -> None:
        name = self._place_of_claim.pop(claim_id, None)
        place = None if name is None else self.places.get(name)
        if name is not None and place is not None:
            place.release(claim_id)
            if place.is_empty:
                del self.places[name]

    def _beat(self, beat: Beat) -> Outcome:
        if not self._is_alive(beat.session):
            return _REFUSED
        for member in list(self.members.values()):
            if member.session == beat.session:
                member.heard.clear()
            else:
                member.heard[beat.session] = member.heard.get(beat.session, 0) + 1
                if member.is_gone and member.silence >= FORGOTTEN_BEATS:
                    self._forget(member.session)
        return _ACCEPTED

    def _remove_gone(self, gone: Gone) -> Outcome:
        member = self.members.get(gone.session)
        if member is None or member.is_gone or member.silence < MISSED_BEATS:
            return _REFUSED
        member.is_gone = True
        member.heard.clear()
        for place in self.places.values():
            place.lose(gone.session)
        return _ACCEPTED

    def _forget(self, session: str) -> None:
        self.members.pop(session, None)
        for member in self.members.values():
            member.heard.pop(session, None)
        for name, place in list(self.places.items()):
            for claim_id in place.forget(session):
                self._place_of_claim.pop(claim_id, None)
            if place.is_empty:
                del self.places[name]

    # --- snapshots

    def encode(self) -> bytes:
        """The whole state; equal states have equal bytes."""
        values = {
            "next_offset": self.next_offset,
            "checkpoint_at": self.checkpoint_at,
            "snapshot": None if self.snapshot is None else asdict(self.snapshot),
            "rows": {key: list(row) for key, row in sorted(self.rows.items())},
            "members": [asdict(member) for _, member in sorted(self.members.items())],
            "places": {name: asdict(place) for name, place in sorted(self.places.items())},
        }
        return json.dumps(values, separators=(",", ":"), sort_keys=True).encode()

    @property
    def digest(self) -> str:
        """A digest of the state, which must be the same for all gateways at the same offset."""
        return hashlib.sha256(self.encode()).hexdigest()

    @classmethod
    def decode(cls, data: bytes) -> "ControlState":
        """The state of a snapshot."""
        values: dict[str, Any] = json.loads(data)
        state = cls()
        state.next_offset = values["next_offset"]
        state.checkpoint_at = values["checkpoint_at"]
        state.snapshot = None if values["snapshot"] is None else Snapshot(**values["snapshot"])
        state.rows = {key: (row[0], row[1]) for key, row in values["rows"].items()}
        state.members = {member["session"]: Member(**member) for member in values["members"]}
        for name, place in values["places"].items():
            holders = [Holder(**holder) for holder in place["holders"]]
            leaving = [Holder(**holder) for holder in place["leaving"]]
            state.places[name] = Place(holders=holders, leaving=leaving)
            state._place_of_claim |= {holder.id: name for holder in (*holders, *leaving)}
        return state
