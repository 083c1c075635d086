"""ClusterRole: a role with one holder in the cluster, over the control log (`control.places` has the rules).

1. A gateway asks for the role while nobody has it. The first one in the order of the log gets it.
2. The holder has it while it holds its lease, which its beats prove. Without a lease it stops within three seconds.
3. When the holder leaves, another gateway gets the role at once. When it dies, it is declared dead after three seconds
   of silence, and the next holder waits for as long as the lease of the dead one may last.
"""

import asyncio
import logging
import secrets
from typing import Final

from hubmere.cluster.control.entries import Role
from hubmere.cluster.control.lease import ClaimEvent, EventKind
from hubmere.cluster.control_log import ControlLog
from hubmere.cluster.places import ROLE_ID
from hubmere.cluster.pulse.gateways import ROLE_PREFIX

log = logging.getLogger("hubmere.cluster")

CHECK_SECONDS: Final = 0.25


class ClusterRole:
    """One role, as one gateway asks for it. Thread rule: the loop's thread only."""

    def __init__(self, control: ControlLog, name: str) -> None:
        self._control = control
        self._name = name
        self._place = f"{ROLE_PREFIX}{name}"
        # The claim, and the session that it belongs to.
        self._asked: str | None = None
        self._session = ""
        self._is_granted = False
        control.listen_to_claims(self._on_event)

    @property
    def is_held(self) -> bool:
        """Whether this gateway has the role now."""
        return self._is_granted and self._control.has_lease

    def ask(self) -> None:
        """Ask for the role, unless this gateway has asked or another one has it."""
        session = self._control.lease.session
        if self._asked is not None and self._session != session:
            # The claims of an ended session are over, and those that nobody had decided are never reported.
            self._asked, self._is_granted = None, False
        if self._asked is not None or self._control.failure is not None:
            return
        place = self._control.state.places.get(self._place)
        if place is not None and place.holders:
            holder = place.holders[0]
            if holder.session == session:
                # An earlier claim of this gateway, which it has given up.
                self._control.release(holder.id)
            return
        asked = self._asked = f"{ROLE_ID}{secrets.token_hex(8)}"
        self._session = session
        role = Role(id=asked, session=session, place=self._place)
        self._control.append(role, lambda: self._on_not_appended(asked))

    async def acquire(self) -> None:
        """Wait until this gateway has the role."""
        while not self.is_held:
            self.ask()
            await asyncio.sleep(CHECK_SECONDS)
        log.info("this gateway has the role %s", self._name)

    async def wait_until_lost(self) -> None:
        """Wait until this gateway no longer has the role."""
        while self.is_held:
            await asyncio.sleep(CHECK_SECONDS)
        log.warning("this gateway has lost the role %s", self._name)
        self.release()

    def release(self) -> None:
        """Give the role back; harmless if this gateway does not have it."""
        asked, self._asked, self._is_granted = self._asked, None, False
        if asked is not None and self._control.failure is None:
            self._control.lease.forget(asked)
            self._control.release(asked)

    def _on_not_appended(self, asked: str) -> None:
        """The request may have been appended nevertheless: release it, so that the next `ask` starts again."""
        if self._asked == asked and not self._is_granted:
            self.release()

    def _on_event(self, event: ClaimEvent) -> None:
        if event.id != self._asked:
            return
        if event.kind is EventKind.GRANTED:
            self._is_granted = True
        else:
            self._asked, self._is_granted = None, False
