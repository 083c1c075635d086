"""Refusals become codes."""

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
    """Every refusal of the model and of the coordinators; those of other endpoints are theirs."""
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith(_PACKAGES):
            yield from tree(child)


@pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)
def test_every_refusal_has_a_row(kind: type[Refusal]) -> None:
    """A refusal without a row would reach clients as something vague, or not at all."""
    assert kind in TABLE


def test_no_refusal_is_mapped_to_success_or_to_an_internal_error() -> None:
    """Clients give up on an unexpected error of the server; a refusal is none."""
    assert not {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR} & set(TABLE.values())


@pytest.mark.parametrize(
    "kind", [errors.StorageFull, errors.PartitionOffline, errors.ShuttingDown, refusals.ConcurrentTransaction]
)
def test_what_passes_by_itself_is_retried_by_clients(kind: type[Refusal]) -> None:
    """A full disk or a restart must not lose events in clients that would have tried again."""
    assert TABLE[kind].retriable


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.SEND_DISABLED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (Status.DISABLED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_disabled_hub_is_not_there_and_a_closed_one_is_forbidden(status: Status, code: ErrorCode) -> None:
    """Reference, kafka 1.8."""
    assert code_of(EntityDisabled("orders", status)) is code


@pytest.mark.parametrize("kind", [kind for kind in tree() if kind.__module__ == refusals.__name__])
def test_every_refusal_of_a_coordinator_says_something(kind: type[Refusal]) -> None:
    """Administrators read the texts in their tools."""
    arguments = {0: (), 1: ("g",), 2: ("g", "x"), 3: ("g", 1, 2), 4: ("g", "x", 1, 2)}
    count = kind.__init__.__code__.co_argcount - 1 if kind.__init__ is not Exception.__init__ else 0

    refusal = kind(*arguments[count])

    assert refusal.text().endswith(".")
