"""A role of the cluster: one holder, and another one when that is gone. Over a log in memory, with the real rules."""

from collections.abc import Callable

from hubmere.cluster.control.entries import Beat, Entry, Gone, Leave, Release, Session
from hubmere.cluster.control.lease import GRANT_SECONDS, ClaimEvent, Lease
from hubmere.cluster.control.state import MISSED_BEATS, ControlState
from hubmere.cluster.roles import ClusterRole


class Log:
    """An ordered log in memory, and the gateways that read it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.gateways: list[Gateway] = []
        self.now = 0.0

    def deliver(self) -> None:
        """Let all gateways read to the end."""
        while any(gateway.state.next_offset < len(self.entries) for gateway in self.gateways):
            for gateway in self.gateways:
                gateway.read()


class Gateway:
    """What a role sees of its control log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.lease = Lease(f"g{len(log.gateways)}")
        self.state = ControlState()
        self.failure: str | None = None
        self.has_lease = True
        self._listeners: list[Callable[[ClaimEvent], None]] = []
        log.gateways.append(self)
        self.append(Session(session=self.lease.session, address=f"{self.lease.session}:5671"))
        self.role = ClusterRole(self, "capture")  # type: ignore[arg-type]

    def listen_to_claims(self, listener: Callable[[ClaimEvent], None]) -> None:
        self._listeners.append(listener)

    def append(self, entry: Entry, on_failed: Callable[[], None] | None = None) -> None:
        self.log.entries.append(entry)

    def release(self, claim_id: str) -> None:
        self.append(Release(id=claim_id))

    def read(self) -> None:
        while self.state.next_offset < len(self.log.entries):
            offset = self.state.next_offset
            entry = self.log.entries[offset]
            self.tell(self.lease.observe(entry, self.state.apply(offset, entry), self.log.now))

    def tell(self, events: list[ClaimEvent]) -> None:
        for event in events:
            for listener in self._listeners:
                listener(event)


def is_held(gateway: Gateway) -> bool:
    return gateway.role.is_held


def two_gateways() -> tuple[Log, Gateway, Gateway]:
    log = Log()
    one, other = Gateway(log), Gateway(log)
    log.deliver()
    for gateway in (one, other):
        gateway.role.ask()
    log.deliver()
    return log, one, other


def test_one_gateway_has_the_role() -> None:
    """Both ask at once; the order of the log decides."""
    _, one, other = two_gateways()

    assert (one.role.is_held, other.role.is_held) == (True, False)


def test_role_of_a_gateway_that_leaves_is_free_at_once() -> None:
    """It has stopped the job before."""
    log, one, other = two_gateways()
    one.append(Leave(session="g0"))
    log.deliver()

    other.role.ask()
    log.deliver()

    assert is_held(other)


def test_role_of_a_dead_gateway_is_taken_over_when_its_lease_has_ended() -> None:
    """It may be alive and cut off: until its lease ends, it may still run the job."""
    log, one, other = two_gateways()
    for number in range(MISSED_BEATS):
        other.append(Beat(session="g1", number=number))
    other.append(Gone(session="g0"))
    log.deliver()
    other.role.ask()
    log.deliver()
    assert not is_held(other)

    log.now += GRANT_SECONDS
    other.tell(other.lease.advance(log.now))

    assert is_held(other)
    assert not is_held(one)


def test_gateway_without_a_lease_does_not_have_the_role() -> None:
    """It cannot know whether another one has taken over."""
    log, one, other = two_gateways()
    one.has_lease = False
    was_held = is_held(one)

    one.role.release()
    log.deliver()
    other.role.ask()
    log.deliver()

    assert not was_held
    assert is_held(other)


def test_claim_that_was_given_up_does_not_block_the_role() -> None:
    """Its release may have been lost: the gateway finds its own old claim, and releases it."""
    log, one, _ = two_gateways()
    one.role._asked, one.role._is_granted = None, False

    one.role.ask()
    log.deliver()
    one.role.ask()
    log.deliver()

    assert is_held(one)


def test_gateway_asks_for_the_role_again_in_a_new_session() -> None:
    """The entry of the old session is read too late: nobody reports to the gateway what became of it."""
    log = Log()
    one, other = Gateway(log), Gateway(log)
    log.deliver()
    for number in range(MISSED_BEATS):
        other.append(Beat(session="g1", number=number))
    other.append(Gone(session="g0"))
    one.role.ask()
    one.lease = Lease("g0 again")
    one.append(Session(session="g0 again"))
    log.deliver()

    one.role.ask()
    log.deliver()

    assert is_held(one)
