"""Entities: status, rights and keys, and that secrets are not shown."""

import pytest

from hubmere.model.entity import CleanupPolicy, Retention, Rights, Status
from hubmere.model.errors import InvalidArgument
from model.builders import a_hub, a_namespace, a_rule

STATUS_TABLE = [
    (Status.ACTIVE, True, True, True),
    (Status.SEND_DISABLED, False, True, True),
    (Status.RECEIVE_DISABLED, True, False, True),
    (Status.DISABLED, False, False, True),
    (Status.CREATING, False, False, False),
    (Status.DELETING, False, False, False),
    (Status.RENAMING, False, False, False),
    (Status.RESTORING, False, False, False),
    (Status.UNKNOWN, False, False, False),
]


@pytest.mark.parametrize(("status", "send", "receive", "settable"), STATUS_TABLE)
def test_status_decides_which_operations_are_allowed(status: Status, send: bool, receive: bool, settable: bool) -> None:
    """The rows are those of the reference table."""
    assert (status.may_send, status.may_receive, status.is_settable) == (send, receive, settable)


def test_every_status_is_in_the_table() -> None:
    """A new status must be in the table of allowed operations."""
    assert {row[0] for row in STATUS_TABLE} == set(Status)


@pytest.mark.parametrize(
    ("names", "rights"),
    [
        (["Send"], Rights.SEND),
        (["listen"], Rights.LISTEN),
        (["Send", "Listen"], Rights.SEND | Rights.LISTEN),
        (["Manage", "Send", "Listen"], Rights.ALL),
    ],
)
def test_rights_are_parsed_by_name(names: list[str], rights: Rights) -> None:
    """The management APIs write them as words."""
    parsed = Rights.parse(names)

    assert parsed is rights
    assert {name.lower() for name in parsed.names} == {name.lower() for name in names}


@pytest.mark.parametrize("names", [["Manage"], ["Manage", "Send"], [], ["Write"]])
def test_invalid_combinations_of_rights_are_refused(names: list[str]) -> None:
    """ARM rejects Manage without Send and Listen (conformance: Model 3)."""
    with pytest.raises(InvalidArgument):
        Rights.parse(names)


def test_manage_includes_every_right() -> None:
    """Manage implies the other two."""
    assert Rights.MANAGE.allows(Rights.SEND)
    assert Rights.MANAGE.allows(Rights.LISTEN)
    assert not Rights.SEND.allows(Rights.LISTEN)
    assert Rights.SEND.allows(Rights.LISTEN | Rights.SEND)


def test_keys_of_a_rule_are_not_in_its_repr() -> None:
    """A printed value may end up in a log."""
    rule = a_rule(a_namespace(), primary_key="first-secret", secondary_key="second-secret")

    assert "secret" not in repr(rule)


def test_entity_key_is_case_insensitive() -> None:
    """Names are case-insensitive (conformance: Model 7)."""
    assert a_hub("Orders").key == a_hub("orders").key


@pytest.mark.parametrize(("hours", "days"), [(1, 1), (24, 1), (25, 2), (168, 7), (None, -1)])
def test_retention_in_days_is_never_shorter_than_the_hours(hours: int | None, days: int) -> None:
    """The older property must not show a shorter retention."""
    assert Retention(hours=hours).days == days


def test_every_policy_except_delete_is_compacted() -> None:
    """Both other policies keep the last event of each key."""
    assert [Retention(policy=policy).is_compacted for policy in CleanupPolicy] == [False, True, True]
