"""GatewayHistory: when each gateway was seen last, and which ones have died. Pure; for operators only.

The state of the control log forgets a dead gateway after some seconds. This history remembers it for LOST_SECONDS, from
the same entries: a gateway is lost if it is not alive and has not stopped cleanly. One that runs again is not lost: it
has begun another session, in the same process or with the same address on the same machine. The history decides
nothing, so gateways may have different ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hubmere.cluster.control.entries import Beat, Entry, Gone, Leave, Session
from hubmere.cluster.control.state import ControlState

# How long a dead gateway is shown.
LOST_SECONDS: Final = 900.0
# Sessions that are remembered: each restart of a gateway is another one.
MAX_SESSIONS: Final = 1_000


@dataclass(slots=True, kw_only=True)
class SeenGateway:
    """A session of a gateway, and the time of its last entry."""

    session: str
    last_seen_ms: int
    address: str = ""
    machine: str = ""
    version: str = ""
    # Equal for all sessions of one process.
    process: str = ""
    # The address in its reports, which knows a port that the system has chosen.
    reported_address: str = ""

    def is_succeeded_by(self, later: "SeenGateway") -> bool:
        """Whether the gateway runs again as another session."""
        if self.process and self.process == later.process:
            return True
        has_port = ":" in self.address
        return has_port and (self.address, self.machine) == (later.address, later.machine)


class GatewayHistory:
    """The sessions of all gateways. Thread rule: one owner."""

    def __init__(self) -> None:
        # In the order of their last entries.
        self._seen: dict[str, SeenGateway] = {}

    def observe(self, entry: Entry, time_ms: int, state: ControlState) -> None:
        """Take over an entry of the control log; `state` may have it already, or none of the entries yet."""
        match entry:
            case Session():
                begun = SeenGateway(
                    session=entry.session,
                    last_seen_ms=time_ms,
                    address=entry.address,
                    machine=entry.machine,
                    version=entry.version,
                    process=entry.process,
                )
                # Also after this session has ended, its gateway is one gateway.
                self._seen = {name: seen for name, seen in self._seen.items() if not seen.is_succeeded_by(begun)}
                self._note(begun)
            case Beat():
                seen = self._seen.get(entry.session) or self._unknown(entry.session, state)
                seen.last_seen_ms = time_ms
                self._note(seen)
            case Gone():
                # Its first entry may be older than what was read.
                known = self._seen.get(entry.session)
                if known is not None:
                    known.reported_address, known.machine = entry.address, known.machine or entry.machine
            case Leave():
                self._seen.pop(entry.session, None)

    def _note(self, seen: SeenGateway) -> None:
        self._seen.pop(seen.session, None)
        self._seen[seen.session] = seen
        if len(self._seen) > MAX_SESSIONS:
            del self._seen[next(iter(self._seen))]

    def _unknown(self, session: str, state: ControlState) -> SeenGateway:
        member = state.members.get(session)
        if member is None:
            return SeenGateway(session=session, last_seen_ms=0)
        return SeenGateway(session=session, last_seen_ms=0, address=member.address, version=member.version)

    def find(self, session: str) -> SeenGateway | None:
        """The last that was seen of a session."""
        return self._seen.get(session)

    def lost_gateways(self, state: ControlState, now_ms: int) -> Sequence[SeenGateway]:
        """Gateways that have died in the last minutes and do not run again, the last one first."""
        alive = {member.session for member in state.alive()}
        return [
            seen
            for seen in reversed(self._seen.values())
            if seen.session not in alive and now_ms - seen.last_seen_ms < LOST_SECONDS * 1000
        ]
