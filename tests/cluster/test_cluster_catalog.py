"""The catalog on the control log: several gateways share one history."""

from collections.abc import Callable, Sequence

import pytest

from hubmere.cluster.catalog import ClusterCatalog, row_key
from hubmere.cluster.control.entries import Entry, decode_entry, encode_entry
from hubmere.cluster.control.lease import Lease
from hubmere.cluster.control.state import ControlState, Outcome
from hubmere.cluster.sealing import Sealer, WrongSecret
from hubmere.model.errors import AlreadyExists, ClusterBusy, Conflict, Refusal
from hubmere.model.spec import root_rule
from hubmere.store.catalog.runtime_state import Meta
from hubmere.store.catalog.view import Create, Delete, Replace, RowChange, Step
from model.builders import NOW_MS, a_hub, a_namespace

NAMESPACE = a_namespace()


class Log:
    """An ordered log in memory; gateways read it when `deliver` is called."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.gateways: list[Gateway] = []

    def deliver(self) -> None:
        """Let all gateways read to the end, including entries that are appended meanwhile."""
        while any(gateway.state.next_offset < len(self.entries) for gateway in self.gateways):
            for gateway in self.gateways:
                gateway.read()


class Gateway:
    """The interface of the control log that a catalog uses."""

    def __init__(self, log: Log, secret: bytes = b"s") -> None:
        self.log = log
        self.lease = Lease(f"g{len(log.gateways)}")
        self.state = ControlState()
        self.failure: str | None = None
        self.loses = False
        self._lost: list[Callable[[], None]] | None = None
        self._listeners: list[Callable[[int, Entry, Outcome], None]] = []
        self.foreign: list[Step] = []
        self.on_reloaded: Callable[[], None] | None = None
        log.gateways.append(self)
        self.catalog = ClusterCatalog(self, Sealer(secret))  # type: ignore[arg-type]
        self.catalog.on_foreign = self.foreign.extend

    def listen(self, listener: Callable[[int, Entry, Outcome], None]) -> None:
        self._listeners.append(listener)

    def append(self, entry: Entry, on_failed: Callable[[], None] | None = None) -> None:
        if self.loses:
            assert on_failed is not None
            on_failed()
        elif self._lost is not None and not self._lost:
            assert on_failed is not None
            self._lost.append(on_failed)
        else:
            self.log.entries.append(encode_entry(entry))

    def lose_next(self) -> Callable[[], None]:
        """Lose the next entry; the function that is returned reports it."""
        lost = self._lost = []

        def report() -> None:
            (on_failed,) = lost
            on_failed()

        return report

    def read(self) -> None:
        while self.state.next_offset < len(self.log.entries):
            offset = self.state.next_offset
            entry = decode_entry(self.log.entries[offset])
            outcome = self.state.apply(offset, entry)
            for listener in self._listeners:
                listener(offset, entry, outcome)

    def submit(self, *steps: Step) -> list[Refusal | None]:
        answers: list[Refusal | None] = []
        self.catalog.submit(*steps, callback=answers.append)
        return answers


def two_gateways() -> tuple[Log, Gateway, Gateway]:
    log = Log()
    one, other = Gateway(log), Gateway(log)
    one.submit(Create(NAMESPACE))
    log.deliver()
    return log, one, other


def test_change_of_one_gateway_is_seen_by_all() -> None:
    """Entities can be managed through any gateway."""
    log, one, other = two_gateways()

    answers = one.submit(Create(a_hub("eh1", namespace=NAMESPACE)))
    assert answers == []  # a change is acknowledged only when it is in the log
    log.deliver()

    assert answers == [None]
    assert [hub.name for hub in other.catalog.view.hubs(NAMESPACE.name)] == ["eh1"]
    assert [type(step) for step in other.foreign] == [Create, Create]


def test_own_change_is_reported_when_it_is_accepted() -> None:
    """The gateway that creates a hub creates its topic, once the hub is certain to exist, and answers after that."""
    log, one, other = two_gateways()
    steps: dict[str, list[Step]] = {"one": [], "other": []}
    waiting: list[Callable[[], None]] = []

    def follow(name: str) -> Callable[[Sequence[Step], Callable[[], None]], None]:
        def on_own(own: Sequence[Step], on_done: Callable[[], None]) -> None:
            steps[name].extend(own)
            waiting.append(on_done)

        return on_own

    one.catalog.on_own, other.catalog.on_own = follow("one"), follow("other")

    hub = a_hub()
    answers = one.submit(Create(hub))
    assert not steps["one"]
    log.deliver()

    assert [step.item for step in steps["one"]] == [hub]
    assert not steps["other"]
    assert not answers
    waiting[0]()
    assert answers == [None]


def test_two_gateways_that_create_the_same_hub_create_one() -> None:
    """The second gets the refusal that one node would give."""
    log, one, other = two_gateways()

    first, second = (
        one.submit(Create(a_hub("eh1", namespace=NAMESPACE))),
        other.submit(Create(a_hub("eh1", namespace=NAMESPACE))),
    )
    log.deliver()

    assert first == [None]
    assert isinstance(second[0], AlreadyExists)
    assert one.state.digest == other.state.digest


def test_two_gateways_that_create_different_hubs_create_both() -> None:
    """A change that was only too late in the order is planned again, not refused."""
    log, one, other = two_gateways()

    answers = [
        *[one.submit(Create(a_hub(f"a{number}", namespace=NAMESPACE))) for number in range(3)],
        *[other.submit(Create(a_hub(f"b{number}", namespace=NAMESPACE))) for number in range(3)],
    ]
    log.deliver()

    assert answers == [[None]] * 6
    for gateway in (one, other):
        names = [hub.name for hub in gateway.catalog.view.hubs(NAMESPACE.name)]
        assert names == ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert [hub.name for hub in gateway.catalog.planned_view.hubs(NAMESPACE.name)] == names


def test_update_based_on_an_old_row_is_a_conflict() -> None:
    """A later writer must not undo a change that it has not seen."""
    log, one, other = two_gateways()
    hub = a_hub("eh1", namespace=NAMESPACE)
    one.submit(Create(hub))
    log.deliver()

    first, second = one.submit(Replace(hub)), other.submit(Replace(hub))
    log.deliver()

    assert first == [None]
    assert isinstance(second[0], Conflict)


def test_hub_cannot_be_created_in_a_namespace_that_is_being_deleted() -> None:
    """No hub remains without its namespace."""
    log, one, other = two_gateways()

    gone, made = one.submit(Delete(NAMESPACE, NOW_MS)), other.submit(Create(a_hub("eh1", namespace=NAMESPACE)))
    log.deliver()

    assert gone == [None]
    assert isinstance(made[0], Refusal)
    assert list(one.catalog.view.items()) == list(other.catalog.view.items()) == []


def test_gateway_that_starts_later_reads_the_same_catalog() -> None:
    """A gateway needs only the control log to start."""
    log, one, _ = two_gateways()
    rule = root_rule(NAMESPACE, now_ms=NOW_MS)
    one.submit(Create(rule), Create(a_hub("eh1", namespace=NAMESPACE)))
    log.deliver()

    late = Gateway(log)
    late.read()

    assert list(late.catalog.view.items()) == list(one.catalog.view.items())


def test_keys_are_not_readable_in_the_log() -> None:
    """A reader of the topic sees names, but no keys."""
    log, one, _ = two_gateways()
    rule = root_rule(NAMESPACE, now_ms=NOW_MS)
    one.submit(Create(rule))
    log.deliver()

    written = b"".join(log.entries)
    assert rule.primary_key.encode() not in written
    assert rule.name.lower().encode() in written


def test_gateway_with_another_secret_cannot_read_the_rules() -> None:
    """It must not start, instead of serving without keys."""
    log, one, _ = two_gateways()
    one.submit(Create(root_rule(NAMESPACE, now_ms=NOW_MS)))
    log.deliver()

    with pytest.raises(WrongSecret):
        Gateway(log, secret=b"other").read()


def test_encrypted_value_cannot_be_moved_to_another_row() -> None:
    """A key that is copied to another rule's row is refused."""
    sealer = Sealer(b"s")

    assert sealer.open(sealer.seal("key", "a"), "a") == "key"
    with pytest.raises(WrongSecret):
        sealer.open(sealer.seal("key", "a"), "b")


def test_change_that_does_not_reach_the_log_is_refused() -> None:
    """Management reports "busy", and plans on the current state again."""
    _, one, _ = two_gateways()
    one.loses = True

    answers = one.submit(Create(a_hub("eh1", namespace=NAMESPACE)))

    assert isinstance(answers[0], ClusterBusy)
    assert one.catalog.planned_view.hubs(NAMESPACE.name) == []


def test_value_that_must_be_created_once_is_created_once() -> None:
    """Two gateways that start at the same time agree on one certificate authority."""
    log, one, other = two_gateways()
    answers: list[Refusal | None] = []

    one.catalog.put_if_absent(Meta(name="ca", text="1"), callback=answers.append)
    other.catalog.put_if_absent(Meta(name="ca", text="2"), callback=answers.append)
    log.deliver()

    assert sorted(type(answer).__name__ for answer in answers) == ["Conflict", "NoneType"]
    assert one.catalog.view.meta("ca") == other.catalog.view.meta("ca") == "1"


def test_catalog_that_cannot_read_the_log_refuses_changes() -> None:
    """After an unknown entry a gateway must make no further decisions."""
    _, one, _ = two_gateways()
    one.failure = "entry 7 of the control log cannot be read"

    with pytest.raises(ClusterBusy):
        one.submit(Create(a_hub("eh1", namespace=NAMESPACE)))


def test_key_of_a_hub_row_is_its_name() -> None:
    """Two hubs of the same name, created at the same time, are one row, so only one is accepted."""
    assert row_key(a_hub("EH1", namespace=NAMESPACE)) == row_key(a_hub("eh1", namespace=NAMESPACE))


def test_state_that_was_loaded_again_is_followed_as_changes() -> None:
    """The broker must forget what was never accepted, and learn what it has missed."""
    log, one, other = two_gateways()
    orders, lost = a_hub("orders", namespace=NAMESPACE), a_hub("lost", namespace=NAMESPACE)
    one.submit(Create(orders))
    one.submit(Create(lost))
    log.deliver()
    right = other.state
    # Until now this gateway has had another hub of that name, and none of the other.
    other.state = ControlState.decode(right.encode())
    wrong = a_hub("orders", namespace=NAMESPACE)
    other.catalog._change_view([RowChange(lost, is_removal=True), RowChange(orders, is_removal=True)])
    other.catalog._change_view([RowChange(wrong)])
    other.foreign.clear()

    assert other.on_reloaded is not None
    other.on_reloaded()

    assert other.foreign == [Delete(wrong), Create(lost), Create(orders)]
    assert other.catalog.view.hub(NAMESPACE.name, "orders").uid == orders.uid
    assert other.catalog.view.find_hub(NAMESPACE.name, "lost") is not None


def test_change_behind_one_that_was_lost_is_sent() -> None:
    """Otherwise it waits until somebody submits another change, although the log can be reached again."""
    log, one, _ = two_gateways()
    lost = one.lose_next()
    first = one.submit(Create(a_hub("eh1", namespace=NAMESPACE)))
    second = one.submit(Create(a_hub("eh2", namespace=NAMESPACE)))

    lost()
    log.deliver()

    assert isinstance(first[0], ClusterBusy)
    assert second == [None]


def test_change_that_is_under_way_is_refused_when_the_state_is_loaded_again() -> None:
    """The new state may begin behind its entry, which is then never read: later changes must not wait for it."""
    log, one, other = two_gateways()
    answers = one.submit(Create(a_hub("eh1", namespace=NAMESPACE)))
    other.read()
    one.state = ControlState.decode(other.state.encode())

    assert one.on_reloaded is not None
    one.on_reloaded()
    later = one.submit(Create(a_hub("eh2", namespace=NAMESPACE)))
    log.deliver()

    assert isinstance(answers[0], ClusterBusy)
    assert later == [None]
    assert [hub.name for hub in one.catalog.view.hubs(NAMESPACE.name)] == ["eh1", "eh2"]
