"""The table from refusals to Kafka error codes."""

from collections.abc import Iterator

import pytest

from hubmere.broker.coordinator import refusals
from hubmere.endpoints.kafka.errors import TABLE, code_of
from hubmere.model import errors
from hubmere.model.entity import Status
from hubmere.model.errors import EntityDisabled, Refusal
from hubmere.wire.kafka.errors import ErrorCode

_PACKAGES = (errors.__name__, refusals.__name__)


def tree(kind: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    """Every refusal of the model and of the coordinators; other endpoints test their own."""
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith(_PACKAGES):
            yield from tree(child)


@pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)
def test_every_refusal_has_a_row(kind: type[Refusal]) -> None:
    """A refusal without a row would give clients an unspecific error."""
    assert kind in TABLE


def test_no_refusal_is_mapped_to_success_or_to_an_internal_error() -> None:
    """Clients give up on UNKNOWN_SERVER_ERROR."""
    assert not {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR} & set(TABLE.values())


@pytest.mark.parametrize(
    "kind", [errors.StorageFull, errors.PartitionOffline, errors.ShuttingDown, refusals.ConcurrentTransaction]
)
def test_temporary_refusals_are_retried_by_clients(kind: type[Refusal]) -> None:
    """A full disk or a restart must not lose events of clients that would retry."""
    assert TABLE[kind].retriable


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.SEND_DISABLED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (Status.DISABLED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_disabled_hub_is_unknown_and_a_half_disabled_one_unauthorized(status: Status, code: ErrorCode) -> None:
    """Reference, kafka 1.8."""
    assert code_of(EntityDisabled("orders", status)) is code


@pytest.mark.parametrize("kind", [kind for kind in tree() if kind.__module__ == refusals.__name__])
def test_every_refusal_of_a_coordinator_has_a_text(kind: type[Refusal]) -> None:
    """Administrators see these texts in their tools."""
    arguments = {0: (), 1: ("g",), 2: ("g", "x"), 3: ("g", 1, 2), 4: ("g", "x", 1, 2)}
    count = kind.__init__.__code__.co_argcount - 1 if kind.__init__ is not Exception.__init__ else 0

    refusal = kind(*arguments[count])

    assert refusal.text().endswith(".")
