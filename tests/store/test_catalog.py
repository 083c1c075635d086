"""The contract of the catalog, in a file and in memory: queries from memory, durable changes, atomic refusals."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from hubmere.model.entity import (
    ApplicationGroup,
    CaptureDescription,
    GeoAlias,
    GeoRole,
    NetworkRuleSet,
    RevokedPublisher,
    Rights,
    RoleAssignment,
    Status,
    ThrottlingMetric,
    ThrottlingPolicy,
)
from hubmere.model.errors import (
    AliasNotFound,
    AlreadyExists,
    GroupNotFound,
    HubNotFound,
    NamespaceNotFound,
    NotFound,
    Refusal,
    RuleNotFound,
    ShuttingDown,
    StorageFull,
)
from hubmere.model.names import alias_name, application_group_name, publisher_name
from hubmere.model.security.roles import DATA_SENDER
from hubmere.store.catalog.blob_records import BlobRecord, BlockRecord, ContainerRecord
from hubmere.store.catalog.rows import TABLES
from hubmere.store.catalog.runtime_state import (
    CaptureState,
    Counter,
    GroupMetadata,
    Meta,
    StateRecord,
    TransactionState,
)
from hubmere.store.catalog.sqlite import MAX_COMPLETED_CHANGES, MEMORY, SqliteCatalog
from hubmere.store.catalog.view import Create, Delete, Drop, Put, Replace
from model.builders import NOW_MS, a_hub_and_group, a_namespace, a_rule
from store.catalog_builders import ManualLoop, SmallDisk, a_catalog, an_offset, with_hub


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "catalog.db" if request.param == "file" else MEMORY


@pytest.fixture
def catalog(place: Path | str) -> Iterator[SqliteCatalog]:
    opened = a_catalog(place)
    yield opened
    opened.close()


# --- reading ---------------------------------------------------------------------------------------------------------


def test_hub_name_is_case_insensitive_and_case_preserving(catalog: SqliteCatalog) -> None:
    """Conformance: Model 7."""
    with_hub(catalog, "Orders")

    found = catalog.view.hub("NS1234", "orders")

    assert found.name == "Orders"
    assert catalog.view.hub_of_uid(found.uid) is found


def test_missing_entity_is_refused_by_its_kind(catalog: SqliteCatalog) -> None:
    """Each endpoint maps these kinds to its own errors."""
    namespace, hub = with_hub(catalog)
    view = catalog.view

    with pytest.raises(NamespaceNotFound):
        view.namespace("absent")
    with pytest.raises(HubNotFound):
        view.hub(namespace.name, "absent")
    with pytest.raises(GroupNotFound):
        view.group(hub, "absent")
    with pytest.raises(RuleNotFound):
        view.rule(hub, "absent")
    with pytest.raises(AliasNotFound):
        view.alias(namespace.name, "absent")


def test_lists_are_sorted_by_name(catalog: SqliteCatalog) -> None:
    """The order is the same after a restart."""
    for name in ("b", "C", "a"):
        with_hub(catalog, name)

    hubs = catalog.view.hubs("ns1234")
    assert [hub.name for hub in hubs] == ["a", "b", "C"]
    assert [group.name for group in catalog.view.groups(hubs[0])] == ["$Default"]


def test_rules_with_the_same_name_are_found_on_namespace_and_hubs(catalog: SqliteCatalog) -> None:
    """The name of a rule is unique only on its entity."""
    namespace, hub = with_hub(catalog)
    catalog.apply(Create(a_rule(hub, "send")), Create(a_rule(namespace, "Send")))

    found = catalog.view.rules_named(namespace, "SEND")

    assert [rule.hub for rule in found] == [None, "eh1"]
    assert len(catalog.view.rules(namespace)) == 2


def test_alias_resolves_to_its_primary(catalog: SqliteCatalog) -> None:
    """Both namespaces of a pairing list the alias; requests go to the primary."""
    first, second = a_namespace("first1"), a_namespace("second")
    catalog.apply(Create(first), Create(second))
    name = alias_name("shop")
    catalog.apply(
        Create(GeoAlias(namespace=second.name, name=name, role=GeoRole.SECONDARY)),
        Create(GeoAlias(namespace=first.name, name=name)),
    )

    found = catalog.view.find_alias("SHOP")

    assert found is not None
    assert found.namespace == "first1"
    assert [alias.name for alias in catalog.view.aliases("second")] == ["shop"]
    assert catalog.view.alias("second", "shop").role is GeoRole.SECONDARY
    assert catalog.view.find_alias("other") is None


# --- changing --------------------------------------------------------------------------------------------------------


def test_change_is_atomic(catalog: SqliteCatalog) -> None:
    """A refused step also undoes the steps before it, in memory and on disk."""
    namespace, hub = with_hub(catalog)
    other, group = a_hub_and_group("other", namespace=namespace)

    with pytest.raises(AlreadyExists):
        catalog.apply(Create(other), Create(group), Create(hub))

    assert catalog.planned_view.find_hub(namespace.name, "other") is None
    assert [hub.name for hub in catalog.view.hubs(namespace.name)] == ["eh1"]
    catalog.apply(Create(other), Create(group))


def test_change_of_a_missing_entity_is_refused(catalog: SqliteCatalog) -> None:
    """Only an existing entity can be replaced or deleted."""
    _, hub = with_hub(catalog)
    absent = a_rule(hub, "absent")

    with pytest.raises(RuleNotFound):
        catalog.apply(Replace(absent))
    with pytest.raises(RuleNotFound):
        catalog.apply(Delete(absent))
    with pytest.raises(NotFound):
        catalog.apply(Delete(RevokedPublisher(hub_uid=hub.uid, name=publisher_name("p"))))


def test_child_without_a_parent_is_refused(catalog: SqliteCatalog) -> None:
    """An offset for a deleted hub must not be stored."""
    _, hub = with_hub(catalog)
    catalog.apply(Delete(hub))

    with pytest.raises(HubNotFound):
        catalog.apply(Put(an_offset(hub)))
    with pytest.raises(NamespaceNotFound):
        catalog.apply(Create(a_hub_and_group(namespace=a_namespace("nowhere"))[0]))


def test_outdated_hub_cannot_change_its_successor(catalog: SqliteCatalog) -> None:
    """A hub that was created again with the same name is a different hub."""
    namespace, old = with_hub(catalog)
    catalog.apply(Delete(old))
    _, new = with_hub(catalog)

    with pytest.raises(HubNotFound):
        catalog.apply(Replace(replace(old, status=Status.DISABLED)))
    with pytest.raises(HubNotFound):
        catalog.apply(Delete(old))

    assert catalog.view.hub(namespace.name, "eh1") == new


def test_replaced_entity_is_visible_and_increases_the_version(catalog: SqliteCatalog) -> None:
    """Values derived from the older version are stale; state records do not change the version."""
    namespace, hub = with_hub(catalog)
    before = catalog.view.version

    catalog.apply(Replace(replace(hub, status=Status.SEND_DISABLED)))
    after = catalog.view.version
    catalog.apply(Put(an_offset(hub)))

    assert catalog.view.hub(namespace.name, "eh1").status is Status.SEND_DISABLED
    assert after > before
    assert catalog.view.version == after


def test_deleting_a_hub_removes_its_children_and_leaves_a_tombstone(place: Path | str) -> None:
    """Its rules, groups, revocations, offsets and capture states; a new hub with the name has none of them."""
    catalog = a_catalog(place)
    namespace, hub = with_hub(catalog)
    catalog.apply(
        Create(a_rule(hub, "send")),
        Create(RevokedPublisher(hub_uid=hub.uid, name=publisher_name("dev"))),
        Put(an_offset(hub)),
        Put(CaptureState(hub_uid=hub.uid, partition=0, capture_id="one", sequence=7)),
    )

    catalog.apply(Delete(hub, now_ms=NOW_MS))

    (deletion,) = catalog.pending_deletions()
    assert (deletion.hub_uid, deletion.partition_count, deletion.since_ms) == (hub.uid, 2, NOW_MS)
    assert {type(item).__name__ for item in catalog.view.items()} == {"Namespace", "AccessRule", "Deletion"}
    assert [rule.hub for rule in catalog.view.rules(namespace)] == [None]
    assert rows_left(catalog) == {"namespaces": 1, "access_rules": 1, "deletions": 1}
    catalog.apply(Drop(deletion))
    assert catalog.pending_deletions() == []
    catalog.close()


def test_deleting_a_namespace_deletes_its_hubs(catalog: SqliteCatalog) -> None:
    """Every hub leaves a tombstone, and nothing else remains."""
    namespace, first = with_hub(catalog, "eh1")
    _, second = with_hub(catalog, "eh2")
    _, kept = with_hub(catalog, "eh1", namespace="another")
    catalog.apply(
        Create(GeoAlias(namespace=namespace.name, name=alias_name("shop"))),
        Put(an_offset(first)),
        Put(GroupMetadata(namespace="ns1234", group_id="g", state="{}")),
        Put(TransactionState(namespace="ns1234", transactional_id="t", state="{}")),
        Put(an_offset(kept)),
    )

    catalog.apply(Delete(namespace))

    assert {deletion.hub_uid for deletion in catalog.pending_deletions()} == {first.uid, second.uid}
    assert [left.name for left in catalog.view.namespaces()] == ["another"]
    assert catalog.view.group_offsets("another", "g") == [an_offset(kept)]
    assert rows_left(catalog) == {
        "namespaces": 1, "hubs": 1, "consumer_groups": 1, "access_rules": 1, "deletions": 2, "group_offsets": 1,
    }  # fmt: skip


def test_refused_deletion_of_a_namespace_restores_all_its_entities(catalog: SqliteCatalog) -> None:
    """The cascade of the deletion is undone completely."""
    namespace, hub = with_hub(catalog)
    catalog.apply(Put(an_offset(hub)))
    before = set(catalog.planned_view.items())

    with pytest.raises(AlreadyExists):
        catalog.apply(Delete(namespace), Create(a_namespace("another")), Create(a_namespace("another")))

    assert set(catalog.planned_view.items()) == before
    assert catalog.planned_view.hub_of_uid(hub.uid) == hub


def a_blob_record() -> BlobRecord:
    return BlobRecord(
        account="acc",
        container="box",
        name="a/b ☃",
        etag="0x2",
        created_ms=1,
        modified_ms=2,
        size_bytes=3,
        body="MTIz",
        parts='[["f",3]]',
        lease_id="id",
        lease_seconds=-1,
        lease_until_ms=-1,
        is_lease_broken=1,
    )


def test_every_kind_of_item_survives_a_restart(tmp_path: Path) -> None:
    """Every stored item is equal after the restart."""
    path = tmp_path / "catalog.db"
    catalog = a_catalog(path)
    namespace, hub = with_hub(catalog)
    policy = ThrottlingPolicy(name="p", metric=ThrottlingMetric.OUTGOING_BYTES, rate_per_s=5)
    catalog.apply(
        Replace(replace(namespace, tags={"team": "ä\ud800"}, network=NetworkRuleSet(ip_masks=("::1",)))),
        Replace(replace(hub, capture=CaptureDescription(enabled=True), user_metadata="☃")),
        Create(a_rule(hub, "send", Rights.SEND)),
        Create(RevokedPublisher(hub_uid=hub.uid, name=publisher_name("dev 01"))),
        Create(GeoAlias(namespace=namespace.name, name=alias_name("shop"))),
        Create(
            ApplicationGroup(
                namespace=namespace.name,
                name=application_group_name("app"),
                client_id="SASKeyName=x",
                policies=(policy,),
            )
        ),
        Create(
            RoleAssignment(
                namespace=namespace.name,
                hub=hub.name,
                hub_uid=hub.uid,
                name="0b5c1b0e-0000-0000-0000-000000000000",
                role_id=DATA_SENDER.id,
                principal_id="somebody",
            )
        ),
        Put(an_offset(hub)),
        Put(replace(an_offset(hub, partition=1), expires_ms=5, metadata="m\x00ä")),
        Put(CaptureState(hub_uid=hub.uid, partition=0, capture_id="one", sequence=7)),
        Put(GroupMetadata(namespace="ns1234", group_id="g", state="{}")),
        Put(ContainerRecord(account="acc", name="box", etag="0x1", modified_ms=1, metadata='{"a":"ä"}')),
        Put(a_blob_record()),
        Put(
            BlockRecord(account="acc", container="box", blob="b", block_id="MQ==", file="f", size_bytes=3, staged_ms=4)
        ),
        Put(TransactionState(namespace="ns1234", transactional_id="t", state="{}")),
        Put(Counter(name="producer-id", next_value=1000)),
        Put(Meta(name="node-id", text="n")),
    )
    _, removed = with_hub(catalog, "gone")
    catalog.apply(Delete(removed))
    before = list(catalog.view.items())
    catalog.close()

    reopened = a_catalog(path)

    assert {type(item) for item in before} == set(TABLES)
    assert set(reopened.view.items()) == set(before)
    assert reopened.view.namespace("ns1234").tags == {"team": "ä\ud800"}
    reopened.close()


def test_records_are_found_by_their_parent(catalog: SqliteCatalog) -> None:
    """Coordinators and the Blob endpoint use these queries."""
    namespace, hub = with_hub(catalog)
    metadata = GroupMetadata(namespace="ns1234", group_id="g", state="{}")
    transaction = TransactionState(namespace="ns1234", transactional_id="t", state="{}")
    capture = CaptureState(hub_uid=hub.uid, partition=0, capture_id="one", sequence=7)
    offsets = [an_offset(hub), an_offset(hub, partition=1)]
    records: list[StateRecord] = [metadata, transaction, capture, *offsets]
    catalog.apply(*map(Put, records))
    view = catalog.view

    assert view.group_offsets(namespace.name, "g") == offsets
    assert view.group_offset(namespace.name, "g", hub.uid, 1) == offsets[1]
    assert view.group_offset(namespace.name, "G", hub.uid, 1) is None
    assert view.groups_with_offsets(namespace.name) == ["g"]
    assert view.group_metadata("NS1234") == [metadata]
    assert view.transactions("ns1234") == [transaction]
    assert view.capture_states(hub.uid) == [capture]
    assert (view.counter("absent"), view.meta("absent")) == (0, None)
    assert view.find_revoked_publisher(hub, "p") is None
    assert (view.revoked_publishers(hub), view.application_groups("ns1234")) == ([], [])
    assert view.find_application_group("ns1234", "a") is None


# --- write-behind ----------------------------------------------------------------------------------------------------


def test_change_is_planned_at_once_and_visible_when_durable() -> None:
    """A change is visible and acknowledged when it is on disk, but its name is reserved at once."""
    loop = ManualLoop()
    catalog = a_catalog(loop=loop)
    outcomes: list[Refusal | None] = []
    namespace = a_namespace()

    catalog.submit(Create(namespace), callback=outcomes.append)

    assert catalog.planned_view.find_namespace(namespace.name) == namespace
    assert catalog.view.find_namespace(namespace.name) is None
    with pytest.raises(AlreadyExists):
        catalog.submit(Create(namespace))
    assert outcomes == []
    loop.turn_until(lambda: bool(outcomes))
    assert outcomes == [None]
    assert catalog.view.find_namespace(namespace.name) == namespace
    catalog.close()


def test_callbacks_run_in_the_order_of_submission(tmp_path: Path) -> None:
    """A later change is never acknowledged before an earlier one."""
    loop = ManualLoop()
    catalog = a_catalog(tmp_path / "catalog.db", loop)
    order: list[int] = []

    def submit(number: int) -> None:
        catalog.submit(Put(Meta(name="last", text=str(number))), callback=lambda _: order.append(number))

    for number in range(500):
        submit(number)
    loop.turn_until(lambda: len(order) == 500)

    assert order == list(range(500))
    assert catalog.view.meta("last") == "499"
    catalog.close()


def test_waiting_changes_share_one_transaction(tmp_path: Path) -> None:
    """While the disk is busy, changes accumulate; only the last value of a key is written."""
    path = tmp_path / "catalog.db"
    loop = ManualLoop()
    catalog = a_catalog(path, loop)
    _, hub = with_hub(catalog)
    outcomes: list[Refusal | None] = []
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    for sequence in range(100):
        catalog.submit(Put(an_offset(hub, sequence)), callback=outcomes.append)
    assert outcomes == []
    blocker.execute("COMMIT")
    loop.turn_until(lambda: len(outcomes) == 100)

    assert set(outcomes) == {None}
    assert blocker.execute("SELECT count(*), max(sequence) FROM group_offsets").fetchone() == (1, 99)
    blocker.close()
    catalog.close()


def test_apply_completes_earlier_changes() -> None:
    """`submit` and `apply` share one order."""
    loop = ManualLoop()
    catalog = a_catalog(loop=loop)
    seen: list[str | None] = []

    catalog.submit(Put(Meta(name="x", text="1")), callback=lambda _: seen.append(catalog.view.meta("x")))
    catalog.apply(Put(Meta(name="x", text="2")))

    assert seen == ["1"]
    assert catalog.view.meta("x") == "2"
    catalog.close()


def test_close_writes_pending_changes_and_refuses_later_ones(tmp_path: Path) -> None:
    """A clean stop loses nothing, and no change is accepted after it."""
    path = tmp_path / "catalog.db"
    catalog = a_catalog(path)
    outcomes: list[Refusal | None] = []
    catalog.submit(Put(Meta(name="x", text="1")), callback=outcomes.append)

    catalog.close()
    catalog.close()

    assert outcomes == [None]
    with pytest.raises(ShuttingDown):
        catalog.submit(Put(Meta(name="x", text="2")))
    reopened = a_catalog(path)
    assert reopened.view.meta("x") == "1"
    reopened.close()


def test_callback_may_submit_changes_while_the_catalog_closes() -> None:
    """Deleting a hub continues in callbacks: a clean stop waits for all of them."""
    catalog = a_catalog()
    _, hub = with_hub(catalog)

    def forget(_: Refusal | None) -> None:
        for deletion in catalog.pending_deletions():
            catalog.submit(Drop(deletion))

    catalog.submit(Delete(hub), callback=forget)
    catalog.close()

    assert catalog.pending_deletions() == []


def test_callback_that_raises_does_not_prevent_the_others(tmp_path: Path) -> None:
    """The event loop reports its error; every other change is still acknowledged."""
    path = tmp_path / "catalog.db"
    loop = ManualLoop()
    catalog = a_catalog(path, loop)
    outcomes: list[Refusal | None] = []
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    def fail(_: Refusal | None) -> None:
        raise LookupError("a bug in the caller")

    catalog.submit(Put(Meta(name="a", text="1")), callback=fail)
    catalog.submit(Put(Meta(name="b", text="2")), callback=outcomes.append)
    blocker.execute("COMMIT")
    blocker.close()
    with pytest.raises(LookupError):
        loop.turn_until(lambda: bool(outcomes))
    loop.turn_until(lambda: bool(outcomes))

    assert outcomes == [None]
    assert (catalog.view.meta("a"), catalog.view.meta("b")) == ("1", "2")
    catalog.close()


def test_many_finished_changes_are_completed_in_several_turns(tmp_path: Path) -> None:
    """The callbacks of hundreds of groups that rebalance must not run in one turn of the loop."""
    path = tmp_path / "catalog.db"
    loop = ManualLoop()
    catalog = a_catalog(path, loop)
    outcomes: list[Refusal | None] = []
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    count = 3 * MAX_COMPLETED_CHANGES + 1
    for number in range(count):
        catalog.submit(Put(Meta(name=f"m{number}", text="1")), callback=outcomes.append)
    blocker.execute("COMMIT")
    blocker.close()
    counts = [0]

    def has_all() -> bool:
        counts.append(len(outcomes))
        return len(outcomes) == count

    loop.turn_until(has_all)

    assert outcomes == [None] * count
    assert max(after - before for before, after in pairwise(counts)) <= MAX_COMPLETED_CHANGES
    catalog.close()


# --- a broken disk ---------------------------------------------------------------------------------------------------


def test_full_disk_refuses_the_change_and_all_changes_that_depend_on_it(tmp_path: Path) -> None:
    """A change that was planned on a failed one is refused too; the catalog works again when the disk does."""
    loop = ManualLoop()
    catalog = SqliteCatalog.open(tmp_path / "catalog.db", loop.post, connection_class=SmallDisk)
    disk = catalog._connection
    assert isinstance(disk, SmallDisk)
    namespace, _ = with_hub(catalog)
    outcomes: list[Refusal | None] = []
    other, group = a_hub_and_group("other", namespace=namespace)
    disk.fill()

    catalog.submit(Create(other), Put(Meta(name="big", text="x" * 1_000_000)), callback=outcomes.append)
    catalog.submit(Create(group), callback=outcomes.append)
    loop.turn_until(lambda: len(outcomes) == 2)

    assert [type(outcome) for outcome in outcomes] == [StorageFull, StorageFull]
    assert catalog.planned_view.find_hub(namespace.name, "other") is None
    assert set(catalog.planned_view.items()) == set(catalog.view.items())
    disk.make_room()
    catalog.apply(Create(other), Create(group))
    assert catalog.view.hub(namespace.name, "other") == other
    catalog.close()


def test_change_submitted_before_a_failure_is_known_is_refused(tmp_path: Path) -> None:
    """Until the owner's thread learns of the failure, changes are still planned on it."""
    loop = ManualLoop()
    catalog = SqliteCatalog.open(tmp_path / "catalog.db", loop.post, connection_class=SmallDisk)
    disk = catalog._connection
    assert isinstance(disk, SmallDisk)
    outcomes: list[Refusal | None] = []
    disk.fill()
    failing = catalog._enqueue([Put(Meta(name="big", text="x" * 1_000_000))], outcomes.append)
    with catalog._lock:
        catalog._lock.wait_for(lambda: failing.is_finished)
    disk.make_room()

    catalog.submit(Put(Meta(name="late", text="x")), callback=outcomes.append)
    loop.turn_until(lambda: len(outcomes) == 2)

    assert [type(outcome) for outcome in outcomes] == [StorageFull, StorageFull]
    assert catalog.planned_view.meta("late") is None
    catalog.apply(Put(Meta(name="late", text="x")))
    catalog.close()


def test_value_that_cannot_be_stored_is_refused_and_the_writer_continues(catalog: SqliteCatalog) -> None:
    """A number beyond 64 bits or a lone surrogate of a client must not stop the catalog."""
    _, hub = with_hub(catalog)

    with pytest.raises(StorageFull):
        catalog.apply(Put(an_offset(hub, 2**63)))
    with pytest.raises(StorageFull):
        catalog.apply(Put(Meta(name="x", text="\ud800")))

    catalog.apply(Put(an_offset(hub, 2**63 - 1)))
    assert catalog.view.group_offsets("ns1234", "g") == [an_offset(hub, 2**63 - 1)]


def test_queue_of_changes_is_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A disk that hangs must slow the callers down, not fill the memory."""
    path = tmp_path / "catalog.db"
    catalog = a_catalog(path)
    monkeypatch.setattr("hubmere.store.catalog.sqlite.MAX_PENDING_CHANGES", 10)
    monkeypatch.setattr("hubmere.store.catalog.sqlite.MAX_ROUND_CHANGES", 1)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    def submit_many() -> None:
        for number in range(20):
            catalog.submit(Put(Meta(name=str(number), text="x")))

    with pytest.raises(StorageFull):
        submit_many()

    blocker.execute("ROLLBACK")
    blocker.close()
    catalog.close()
    assert len(list(catalog.view.items())) >= 10


def test_catalog_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    """It contains the keys of all rules."""
    path = tmp_path / "catalog.db"
    catalog = a_catalog(path)
    with_hub(catalog)

    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}

    assert set(modes.values()) == {0o600}
    catalog.close()


def rows_left(catalog: SqliteCatalog) -> dict[str, int]:
    """The number of rows of each table, read over the catalog's own connection while its writer is idle."""
    counts = {
        table.name: catalog._connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]
        for table in TABLES.values()
    }
    return {name: count for name, count in counts.items() if count}
