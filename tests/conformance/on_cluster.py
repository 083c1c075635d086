"""Conformance tests that do not apply to a gateway in front of Kafka brokers, with the reason.

`DIFFERENCES` are what clients notice; docs/compatibility.md lists them. `OF_ONE_NODE` are tests of a node that they
start themselves with settings, files or code of their own: they say nothing about a gateway.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What clients notice, and why."""

    what: str
    reason: str


_UNCOMMITTED: Final = Difference(
    what="consumers with `isolation.level=read_uncommitted` see events of open transactions when these end",
    reason="gateways fetch up to the last stable offset, once for all readers",
)

# By the file below this folder and the name of the test, without its parameters.
DIFFERENCES: Final[dict[str, Difference]] = {
    "kafka/test_java.py::test_transactions_are_all_or_nothing": _UNCOMMITTED,
}

OF_ONE_NODE: Final = frozenset(
    {
        "amqp/test_azure_errors.py::test_clients_of_a_disabled_application_group_are_disconnected_and_refused",
        "amqp/test_azure_errors.py::test_clients_continue_after_a_restart",
        "amqp/test_azure_errors.py::test_event_for_an_offline_partition_is_retried",
        "amqp/test_azure_errors.py::test_only_the_rule_of_a_limited_application_group_is_throttled",
        "amqp/test_azure_errors.py::test_throttling_is_retried_by_the_sdk_and_nothing_is_lost",
        "amqp/test_azure_errors.py::test_throttling_without_retries_is_reported",
        "amqp/test_whole_node.py::test_accepted_event_survives_the_end_of_the_process",
        "amqp/test_whole_node.py::test_printed_connection_string_works_over_tls",
        "kafka/test_confluent.py::test_event_that_is_too_large_fails_alone",
        "kafka/test_consumer_protocol.py::test_members_continue_after_a_crash_of_the_node",
        "kafka/test_tools.py::test_segments_can_be_dumped",
    }
)


def why_left_out(name: str) -> str | None:
    """Why a test is left out on a cluster; None if it is not."""
    difference = DIFFERENCES.get(name)
    if difference is not None:
        return difference.reason
    return "a test of one node" if name in OF_ONE_NODE else None
