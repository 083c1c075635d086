"""Callers: the order of the checks, and their results."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.builders import ADMIN_TOKEN, NOW_MS, BrokerHarness, a_batch
from hubmere.broker import (
    AdminToken,
    Caller,
    ConnectionStringCredential,
    Credential,
    SharedAccessSignature,
    SharedKey,
)
from hubmere.broker.used_hubs import UsedHubs
from hubmere.model.entity import DefaultAction, KeyKind, NetworkRuleSet, Rights
from hubmere.model.errors import (
    AddressNotAllowed,
    AdminRequired,
    ClaimMissing,
    CredentialRevoked,
    ExpiredToken,
    GroupNotFound,
    HubNotFound,
    InvalidAudience,
    InvalidSignature,
    LeaderEpochUnknown,
    LimitReached,
    MalformedToken,
    MissingToken,
    NamespaceNotFound,
    NotInTier,
    PartitionNotFound,
    Refusal,
    SequenceOutOfRange,
)
from hubmere.model.names import ROOT_RULE, namespace_name, rule_name
from hubmere.model.position import Position
from hubmere.model.security.sas import make_token
from hubmere.model.spec import NamespaceSpec
from hubmere.model.tier import Profile

NOW_S = NOW_MS / 1000
HOST = "localhost"
HERE, ELSEWHERE = "127.0.0.1", "192.0.2.7"
LATER_S = int(NOW_S) + 3600


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    harness = BrokerHarness()
    yield harness
    harness.close()


def key_of(harness: BrokerHarness, rule: str = ROOT_RULE, hub: str | None = None) -> str:
    view = harness.catalog.view
    return view.rule(view.namespace("hubmere") if hub is None else view.hub("hubmere", hub), rule).primary_key


def a_rule(harness: BrokerHarness, name: str, *rights: str, hub: str | None = None) -> SharedKey:
    """A rule and the credential of its primary key."""
    parsed = Rights.parse(rights)
    harness.do(lambda done: harness.manager.write_rule("hubmere", hub, rule_name(name), parsed, harness.actor(), done))
    return SharedKey(name, key_of(harness, name, hub))


def a_caller_of(harness: BrokerHarness, credential: Credential | None = None, **options: Any) -> Caller:
    credential = credential or SharedKey(ROOT_RULE, key_of(harness))
    return harness.broker.sign_in(HOST, credential, address=HERE, now_s=NOW_S, **options)


def deny_all_but(harness: BrokerHarness, mask: str) -> None:
    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=(mask,))
    harness.do(lambda done: harness.manager.update_network("hubmere", rules, harness.actor(), done))


# --- the order of the checks


def test_address_is_checked_before_the_credential(harness: BrokerHarness) -> None:
    """A client that may not connect learns nothing about keys."""
    deny_all_but(harness, HERE)

    with pytest.raises(AddressNotAllowed):
        harness.broker.sign_in(HOST, SharedKey("nobody", "wrong"), address=ELSEWHERE, now_s=NOW_S)


def test_right_is_checked_before_existence(harness: BrokerHarness) -> None:
    """A client without the right cannot find out which hubs exist."""
    caller = a_caller_of(harness, a_rule(harness, "listener", "Listen"))

    refusals = []
    for hub in ("orders", "no-such-hub"):
        with pytest.raises(ClaimMissing) as refused:
            caller.open_publisher(hub, NOW_S)
        refusals.append(refused.type)

    assert refusals == [ClaimMissing, ClaimMissing]


def test_missing_hub_is_reported_to_a_caller_with_the_right(harness: BrokerHarness) -> None:
    """A client with the right gets the exact reason."""
    with pytest.raises(HubNotFound):
        a_caller_of(harness).open_publisher("no-such-hub", NOW_S)


def test_missing_group_is_reported_after_the_right(harness: BrokerHarness) -> None:
    """The same order holds for consumer groups."""
    with pytest.raises(GroupNotFound):
        a_reader(a_caller_of(harness), group="no-such-group")


# --- credentials


@pytest.mark.parametrize("form", ["key", "token", "connection string"])
def test_every_form_of_a_credential_opens_the_hub(harness: BrokerHarness, form: str) -> None:
    """Each protocol has its own form; the broker verifies all of them."""
    key = key_of(harness)
    token = make_token(f"sb://{HOST}/orders", ROOT_RULE, key, expires_at_s=LATER_S)
    text = f"Endpoint=sb://{HOST}/;SharedAccessKeyName={ROOT_RULE};SharedAccessKey={key}"
    credentials: dict[str, Credential] = {
        "key": SharedKey(ROOT_RULE, key),
        "token": SharedAccessSignature(token),
        "connection string": ConnectionStringCredential(text),
    }

    receipt = publish_one(harness, a_caller_of(harness, credentials[form]))

    assert receipt == (None, 0)


def test_wrong_key_is_refused(harness: BrokerHarness) -> None:
    """The name of a rule without its key proves nothing."""
    with pytest.raises(InvalidSignature):
        a_caller_of(harness, SharedKey(ROOT_RULE, "wrong"))


def test_expired_token_is_refused_and_a_verified_one_is_not_trusted_beyond_its_expiry(harness: BrokerHarness) -> None:
    """Verified tokens are cached; the cache must not outlive them."""
    token = SharedAccessSignature(make_token(f"sb://{HOST}/", ROOT_RULE, key_of(harness), expires_at_s=int(NOW_S) + 10))
    caller = a_caller_of(harness, token)

    assert caller.is_current(NOW_S)
    assert not caller.is_current(NOW_S + 11)
    with pytest.raises(ExpiredToken):
        harness.broker.sign_in(HOST, token, address=HERE, now_s=NOW_S + 11)


def test_verified_token_is_verified_again_after_its_key_was_replaced(harness: BrokerHarness) -> None:
    """A change of entities invalidates cached verifications."""
    credential = a_rule(harness, "sender", "Send")
    token = SharedAccessSignature(make_token(f"sb://{HOST}/", "sender", credential.key, expires_at_s=LATER_S))
    caller = a_caller_of(harness, token)
    a_rule(harness, "other", "Listen")  # any change of entities moves the version

    harness.do(lambda done: harness.manager.delete_rule("hubmere", None, "sender", harness.actor(), done))

    assert not caller.is_current(NOW_S)
    with pytest.raises(InvalidSignature):
        a_caller_of(harness, token)


def test_token_of_one_hub_does_not_open_another(harness: BrokerHarness) -> None:
    """The scope of a credential limits both access and visibility."""
    harness.a_hub("payments")
    caller = a_caller_of(harness, a_rule(harness, "sender", "Send", hub="orders"))

    caller.open_publisher("orders", NOW_S)

    with pytest.raises(InvalidAudience):
        caller.open_publisher("payments", NOW_S)
    assert [hub.name for hub in caller.hubs()] == ["orders"]
    with pytest.raises(HubNotFound):
        caller.visible_hub("payments")


def test_credentials_are_not_shown() -> None:
    """A credential that is logged by accident must not be readable."""
    shown = repr([SharedKey("rule", "secret"), SharedAccessSignature("secret"), AdminToken("secret")])

    assert "secret" not in shown


# --- claims, one after another


def test_caller_without_a_claim_opens_nothing(harness: BrokerHarness) -> None:
    """A connection exists before its client has authenticated."""
    caller = harness.broker.connect(HOST, HERE)

    assert not caller.is_authenticated
    with pytest.raises(ClaimMissing):
        caller.open_publisher("orders", NOW_S)
    with pytest.raises(MissingToken):
        _ = caller.principal


def test_claims_are_cumulative(harness: BrokerHarness) -> None:
    """AMQP clients send one token for each hub or direction."""
    caller = harness.broker.connect(HOST, HERE)
    sender = a_rule(harness, "sender", "Send")
    harness.a_hub("payments")
    for hub in ("orders", "payments"):
        token = make_token(f"sb://{HOST}/{hub}", "sender", sender.key, expires_at_s=LATER_S)
        caller.authenticate(SharedAccessSignature(token), NOW_S)

    caller.open_publisher("orders", NOW_S)
    caller.open_publisher("payments", NOW_S)

    assert caller.claims.rules == ("sender",)
    assert len(caller.claims) == 2


def test_claim_of_a_deleted_rule_cannot_be_used_for_new_links(harness: BrokerHarness) -> None:
    """The revocation applies to new links at once, before open connections are reviewed."""
    caller = harness.broker.connect(HOST, HERE)
    caller.authenticate(a_rule(harness, "sender", "Send"), NOW_S)
    caller.open_publisher("orders", NOW_S)

    harness.do(lambda done: harness.manager.delete_rule("hubmere", None, "sender", harness.actor(), done))

    with pytest.raises(ClaimMissing):
        caller.open_publisher("orders", NOW_S)


def test_claim_is_limited_to_its_audience(harness: BrokerHarness) -> None:
    """A token of the namespace that was sent for one hub does not open another hub."""
    harness.a_hub("payments")
    caller = harness.broker.connect(HOST, HERE)
    token = SharedAccessSignature(make_token(f"sb://{HOST}/", ROOT_RULE, key_of(harness), expires_at_s=LATER_S))

    caller.authenticate(token, NOW_S, audience=f"amqps://{HOST}/orders/Partitions/0")

    caller.open_publisher("orders", NOW_S, partition="0")
    for hub, partition in (("orders", "1"), ("payments", "0")):
        with pytest.raises(ClaimMissing):
            caller.open_publisher(hub, NOW_S, partition=partition)


def test_audience_must_exist_and_be_covered(harness: BrokerHarness) -> None:
    """The right is checked first: a token of one hub does not reveal other hubs."""
    caller = harness.broker.connect(HOST, HERE)
    sender = a_rule(harness, "sender", "Send", hub="orders")
    tokens = [
        SharedAccessSignature(make_token(f"sb://{HOST}/{path}", rule, key, expires_at_s=LATER_S))
        for path, rule, key in (("", ROOT_RULE, key_of(harness)), ("orders", "sender", sender.key))
    ]

    with pytest.raises(HubNotFound):
        caller.authenticate(tokens[0], NOW_S, audience=f"sb://{HOST}/no-such-hub")
    with pytest.raises(InvalidAudience):
        caller.authenticate(tokens[1], NOW_S, audience=f"sb://{HOST}/no-such-hub")
    assert not caller.is_authenticated


def test_runtime_information_needs_a_claim_or_a_token_in_the_request(harness: BrokerHarness) -> None:
    """Two SDKs send a token with each management request instead of a claim before it."""
    caller = harness.broker.connect(HOST, HERE)
    token = SharedAccessSignature(make_token(f"sb://{HOST}/orders", ROOT_RULE, key_of(harness), expires_at_s=LATER_S))

    with pytest.raises(MissingToken):
        caller.hub_info("orders", None, now=0.0, now_s=NOW_S)
    assert caller.hub_info("orders", token, now=0.0, now_s=NOW_S).partition_ids == ("0", "1", "2", "3")
    assert not caller.is_authenticated

    caller.authenticate(token, NOW_S)
    info = caller.partition_info("orders", "1", None, now=0.0, now_s=NOW_S)
    assert (info.hub, info.partition, info.is_empty) == ("orders", 1, True)


def test_expired_claim_cannot_be_used_for_new_links(harness: BrokerHarness) -> None:
    """A client must renew its token before it opens a new link."""
    caller = harness.broker.connect(HOST, HERE)
    token = make_token(f"sb://{HOST}/", ROOT_RULE, key_of(harness), expires_at_s=int(NOW_S) + 10)
    caller.authenticate(SharedAccessSignature(token), NOW_S)

    assert caller.claims.next_expiry(NOW_S) == int(NOW_S) + 10
    with pytest.raises(ClaimMissing):
        caller.open_publisher("orders", NOW_S + 11)


def test_rotated_key_is_valid_only_for_hubs_that_it_has_used(harness: BrokerHarness) -> None:
    """An open Kafka connection keeps its topics for the grace time, but gets no new ones."""
    harness.a_hub("payments")
    caller = a_caller_of(harness, a_rule(harness, "sender", "Send"), is_kafka=True)
    caller.publisher("orders", NOW_S)
    regenerate(harness, "sender")

    caller.review(harness.broker.revocation.judge, NOW_S)

    caller.hub("orders", Rights.SEND, NOW_S)
    with pytest.raises(CredentialRevoked):
        caller.hub("payments", Rights.SEND, NOW_S)


# --- Kafka


def test_topic_names_differ_by_case(harness: BrokerHarness) -> None:
    """For a Kafka client, another spelling of a hub's name is another topic."""
    with pytest.raises(HubNotFound):
        a_caller_of(harness, is_kafka=True).publisher("ORDERS", NOW_S)

    assert a_caller_of(harness).hub("ORDERS", Rights.SEND, NOW_S).name == "orders"


def test_namespace_without_kafka_refuses_kafka_clients() -> None:
    """The Basic tier has no Kafka endpoint."""
    harness = BrokerHarness(profile=Profile.BASIC)
    try:
        with pytest.raises(NotInTier):
            a_caller_of(harness, is_kafka=True).publisher("orders", NOW_S)
    finally:
        harness.close()


def test_cached_publisher_is_dropped_when_its_hub_is_created_again(harness: BrokerHarness) -> None:
    """A new hub with the same name is a different hub."""
    caller = a_caller_of(harness, is_kafka=True)
    first = caller.publisher("orders", NOW_S)
    assert caller.publisher("orders", NOW_S) is first

    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))
    harness.a_hub("orders")

    assert caller.publisher("orders", NOW_S) is not first


# --- connections


def test_connection_beyond_the_limit_is_refused() -> None:
    """Every protocol counts connections by the same rule."""
    harness = BrokerHarness(limits={"connections": 1})
    try:
        first, second = a_caller_of(harness), a_caller_of(harness)
        first.open_connection()
        with pytest.raises(LimitReached):
            second.open_connection()

        first.close_connection()
        first.close_connection()
        second.open_connection()

        assert second.namespace.counters.active_connections == 1
        assert second.namespace.counters.quota_exceeded_errors == 1
    finally:
        harness.close()


# --- management


def test_manager_of_a_namespace_cannot_find_out_which_others_exist(harness: BrokerHarness) -> None:
    """Refusals of management requests do not reveal names."""
    harness.do(
        lambda done: harness.manager.create_namespace(namespace_name("second"), NamespaceSpec(), harness.actor(), done)
    )
    root = SharedKey(ROOT_RULE, key_of(harness))
    caller = harness.broker.sign_in_manager("hubmere", root, NOW_S)

    assert [each.name for each in caller.namespaces()] == ["hubmere"]
    for name in ("second", "no-such-namespace"):
        with pytest.raises(NamespaceNotFound):
            caller.at(name)
    with pytest.raises(AdminRequired):
        harness.broker.sign_in_manager("no-such-namespace", root, NOW_S)


def test_administrator_manages_every_namespace(harness: BrokerHarness) -> None:
    """The administrator may know which namespaces exist."""
    harness.do(
        lambda done: harness.manager.create_namespace(namespace_name("second"), NamespaceSpec(), harness.actor(), done)
    )
    caller = harness.broker.sign_in_admin(AdminToken(ADMIN_TOKEN))

    assert [each.name for each in caller.namespaces()] == ["hubmere", "second"]
    assert caller.at("second").namespace.name == "second"
    with pytest.raises(NamespaceNotFound):
        harness.broker.sign_in_manager("no-such-namespace", AdminToken(ADMIN_TOKEN), NOW_S)


@pytest.mark.parametrize("credential", [SharedKey(ROOT_RULE, "any"), AdminToken("wrong"), AdminToken("")])
def test_only_the_administrators_token_makes_an_administrator(harness: BrokerHarness, credential: Credential) -> None:
    """A root key or an empty token is not enough."""
    with pytest.raises((AdminRequired, InvalidSignature)):
        harness.broker.sign_in_admin(credential)


def test_network_rules_do_not_apply_to_management(harness: BrokerHarness) -> None:
    """Otherwise nobody could repair a rule that excludes everybody."""
    root = SharedKey(ROOT_RULE, key_of(harness))
    deny_all_but(harness, ELSEWHERE)

    with pytest.raises(AddressNotAllowed):
        a_caller_of(harness, root)
    assert harness.broker.sign_in_manager("hubmere", root, NOW_S).namespace.name == "hubmere"


# --- publishers, readers and views


def test_reader_reads_what_was_published(harness: BrokerHarness) -> None:
    """One event is in exactly one partition."""
    caller = a_caller_of(harness)
    publish_one(harness, caller)
    readers = [a_reader(caller, partition=str(number)) for number in range(4)]
    found = [reader.read(1 << 20) for reader in readers]

    assert [chunk is not None for chunk in found].count(True) == 1
    assert {reader.entity.name for reader in readers} == {"orders"}


def test_partition_is_found_by_its_id_after_the_right(harness: BrokerHarness) -> None:
    """A caller without the right does not learn which partitions exist."""
    reading, sending = (a_caller_of(harness, a_rule(harness, right, right)) for right in ("Listen", "Send"))

    assert reading.partition("orders", "0", Rights.LISTEN, NOW_S).state.committed == 0
    with pytest.raises(PartitionNotFound):
        reading.partition("orders", "99", Rights.LISTEN, NOW_S)
    with pytest.raises(ClaimMissing):
        sending.partition("orders", "99", Rights.LISTEN, NOW_S)


def test_view_of_a_deleted_hub_is_marked_as_stale(harness: BrokerHarness) -> None:
    """Code that caches a view can detect that the hub was deleted."""
    hub = a_caller_of(harness).hub("orders", Rights.LISTEN, NOW_S)
    assert hub.is_current
    assert hub.partition(0).state.committed == 0

    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))

    assert not hub.is_current


def test_publisher_is_closed_when_its_hub_is_deleted(harness: BrokerHarness) -> None:
    """The endpoint must detach the link."""
    refusals: list[Refusal] = []
    a_caller_of(harness).open_publisher("orders", NOW_S, on_closed=refusals.append)

    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))

    assert len(refusals) == 1


def publish_one(harness: BrokerHarness, caller: Caller) -> tuple[Exception | None, int]:
    publisher = caller.open_publisher("orders", NOW_S)
    receipt = publisher.publish(a_batch(), count=1, size_bytes=1, key=None, now=harness.now, now_ms=NOW_MS)
    harness.turn.run()
    return receipt.error, receipt.sequence_number


def a_reader(caller: Caller, *, group: str = "$Default", partition: str = "0") -> Any:
    return caller.reader(
        "orders",
        NOW_S,
        group=group,
        partition=partition,
        position=Position.first(),
        on_ready=lambda: None,
        on_closed=lambda _: None,
    )


def regenerate(harness: BrokerHarness, rule: str) -> None:
    harness.do(
        lambda done: harness.manager.regenerate_key("hubmere", None, rule, KeyKind.PRIMARY, None, harness.actor(), done)
    )


def test_peek_needs_the_right_to_listen(harness: BrokerHarness) -> None:
    """A tool that shows events needs the same right as a reader."""
    caller = a_caller_of(harness, a_rule(harness, "sender", "Send"))

    with pytest.raises(ClaimMissing):
        caller.peek("orders", NOW_S, group="$Default", partition="0", position=Position.first(), max_bytes=1024)


def test_peek_does_not_count_as_a_reader(harness: BrokerHarness) -> None:
    """It reads published events without a side effect."""
    caller = a_caller_of(harness)
    publisher = caller.open_publisher("orders", NOW_S, partition="0")
    publisher.publish(a_batch(2), count=2, size_bytes=2, key=None, now=0.0, now_ms=NOW_MS)
    harness.turn.run()

    peek = caller.peek("orders", NOW_S, group="$Default", partition="0", position=Position.first(), max_bytes=1024)

    assert peek.chunk is not None
    assert peek.partition.state.committed == 2
    assert caller.visible_hub("orders").readers() == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("orders", (HOST, "orders")),
        ("hubmere/orders", ("hubmere", "orders")),
        ("hubmere/missing", ("hubmere", "missing")),
        ("elsewhere/orders", (HOST, "elsewhere/orders")),
    ],
)
def test_path_names_a_namespace_if_the_host_name_does_not(
    harness: BrokerHarness, path: str, expected: tuple[str, str]
) -> None:
    """The form does not depend on whether the hub exists, so that refusals do not reveal which hubs exist."""
    assert harness.broker.split_hub_path(HOST, path) == expected


# --- connections with one credential (Kafka)


def test_connection_keeps_its_principal_when_it_authenticates_again(harness: BrokerHarness) -> None:
    """KIP-368: a connection cannot become another client's."""
    caller = a_caller_of(harness, a_rule(harness, "first", "Send"), is_kafka=True)

    caller.reauthenticate(None, SharedKey("first", key_of(harness, "first")), NOW_S)
    with pytest.raises(MalformedToken):
        caller.reauthenticate(None, a_rule(harness, "second", "Send"), NOW_S)

    assert caller.principal.rule == "first"


def test_cached_rights_are_checked_again_after_a_new_credential(harness: BrokerHarness) -> None:
    """The new credential may have fewer rights."""
    caller = a_caller_of(harness, is_kafka=True)
    publisher, before = caller.publisher("orders", NOW_S), caller.revision

    caller.reauthenticate(None, SharedKey(ROOT_RULE, key_of(harness)), NOW_S)

    assert caller.revision > before
    assert caller.publisher("orders", NOW_S) is not publisher


def test_connection_is_closed_if_it_uses_a_right_that_was_revoked(harness: BrokerHarness) -> None:
    """Connections that do not use the right stay open."""
    writer, idle = (a_caller_of(harness, a_rule(harness, name, "Send", "Listen"), is_kafka=True) for name in ("a", "b"))
    writer.publisher("orders", NOW_S)
    for name in ("a", "b"):
        a_rule(harness, name, "Listen")

    idle.review_connection(harness.broker.revocation.judge, NOW_S)
    with pytest.raises(ClaimMissing):
        writer.review_connection(harness.broker.revocation.judge, NOW_S)

    assert idle.readable("orders", NOW_S).name == "orders"
    with pytest.raises(ClaimMissing):
        idle.publisher("orders", NOW_S)


def test_partition_is_followed_with_the_right_to_listen_only(harness: BrokerHarness) -> None:
    """A fetch names neither a group nor an epoch, but needs the same right as a reader."""
    with pytest.raises(ClaimMissing):
        a_caller_of(harness, a_rule(harness, "sender", "Send"), is_kafka=True).follow("orders", 0, print, NOW_S)
    with pytest.raises(PartitionNotFound):
        a_caller_of(harness, is_kafka=True).follow("orders", 4, print, NOW_S)


def test_followed_partition_reports_its_moves_until_it_is_closed(harness: BrokerHarness) -> None:
    """A waiting fetch is woken by a commit; after it is closed it is not woken."""
    moves: list[int] = []
    reader = a_caller_of(harness, is_kafka=True).follow("orders", 0, lambda: moves.append(1), NOW_S)
    publisher = a_caller_of(harness).open_publisher("orders", NOW_S, partition="0")

    publisher.publish(a_batch(3), count=3, size_bytes=100, now=0.0, now_ms=NOW_MS)
    harness.turn.run()
    read = reader.read(1, max_bytes=1000, space_bytes=1000)
    reader.close()
    publisher.publish(a_batch(1), count=1, size_bytes=100, now=0.0, now_ms=NOW_MS)
    harness.turn.run()

    assert moves == [1]
    assert read.chunk is not None
    assert (read.chunk.first_sequence, read.chunk.next_sequence) == (0, 3)


def test_followed_partition_is_read_at_its_known_end_too(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster the end may be old, and the log fetches new events only for readers of that partition."""
    reader = a_caller_of(harness, is_kafka=True).follow("orders", 0, print, NOW_S)
    log, asked = harness.hub.log(0), []
    monkeypatch.setattr(type(log), "read", lambda self, sequence, *_, **__: asked.append(sequence))

    assert reader.read(0, max_bytes=1000, space_bytes=1000).chunk is None

    assert asked == [0] == [log.state.committed]


@pytest.mark.parametrize(
    ("sequence", "epoch", "refusal"), [(9, -1, SequenceOutOfRange), (0, 9, LeaderEpochUnknown), (0, -1, None)]
)
def test_position_and_leader_epoch_are_checked_at_each_read(
    harness: BrokerHarness, sequence: int, epoch: int, refusal: type[Refusal] | None
) -> None:
    """A Kafka client sends both with every fetch, and gets the state of the partition in the answer."""
    reader = a_caller_of(harness, is_kafka=True).follow("orders", 0, print, NOW_S)

    read = reader.read(sequence, max_bytes=1000, space_bytes=1000, leader_epoch=epoch)

    assert (None if read.refusal is None else type(read.refusal)) is refusal
    assert read.state.committed == 0


def test_records_are_deleted_with_the_right_to_manage_only(harness: BrokerHarness) -> None:
    """DeleteRecords moves the log start offset of a partition for all readers."""
    caller = a_caller_of(harness, is_kafka=True)
    publisher = caller.publisher("orders", NOW_S)
    publisher.publish(a_batch(5), count=5, size_bytes=100, partition=2, now=0.0, now_ms=NOW_MS)
    harness.turn.run()

    with pytest.raises(ClaimMissing):
        a_caller_of(harness, a_rule(harness, "client", "Send", "Listen"), is_kafka=True).delete_records(
            "orders", 2, 5, NOW_S
        )
    with pytest.raises(SequenceOutOfRange):
        caller.delete_records("orders", 2, -7, NOW_S)

    assert caller.delete_records("orders", 2, 5, NOW_S) == 5


def test_usable_hubs_are_those_of_the_credential(harness: BrokerHarness) -> None:
    """The list of topics must not contain hubs that a client may not use."""
    harness.a_hub("other")
    credential = a_rule(harness, "one-hub", "Listen", hub="orders")
    token = make_token(f"sb://{HOST}/orders", credential.rule, credential.key, expires_at_s=LATER_S)
    of_hub = a_caller_of(harness, SharedAccessSignature(token))

    assert [hub.name for hub in of_hub.usable_hubs(Rights.LISTEN)] == ["orders"]
    assert of_hub.usable_hubs(Rights.SEND) == []
    assert [hub.name for hub in a_caller_of(harness).usable_hubs(Rights.SEND)] == ["orders", "other"]


def test_callers_of_the_same_hubs_share_their_names() -> None:
    """Thousands of idle connections use the same hub; a caller of many hubs has a set of its own."""
    first, second, third = UsedHubs(), UsedHubs(), UsedHubs()
    for used in (first, second):
        used.add_name("orders")
        used.add_name("returns")
    for number in range(20):
        third.add_name(f"hub-{number}")

    second.add_name("third")

    assert first.names == {"orders", "returns"}
    assert second.names == {"orders", "returns", "third"}
    assert third.names == {f"hub-{number}" for number in range(20)}


def test_caller_forgets_its_hubs() -> None:
    """After a new credential every right is checked again."""
    used = UsedHubs()
    used.add_name("orders")

    used.clear()

    assert not used.names
    assert not used.publishers
    assert not used.readable
