"""The timer of the coordinators: deadlines that are already due when they are set, on each kind of event loop."""

from dataclasses import replace

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, only
from endpoints.kafka.test_groups import a_join
from endpoints.kafka.test_transactions import an_enlisting, an_init
from hubmere.model.clock import SystemClock
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.transactions import DescribeTransactionsRequest

pytestmark = pytest.mark.usefixtures("either_loop")

_BEHIND_S = 0.05
_SHORT_MS = 20
# Far more requests than can be answered within 20 ms on any machine.
_LOOKS = 100_000


class SlowClock(SystemClock):
    """A clock behind the loop's own time, as on a busy machine: a short deadline is due when its timer is set."""

    def monotonic(self) -> float:
        return super().monotonic() - _BEHIND_S


def test_group_whose_deadline_is_due_does_not_close_the_next_connection() -> None:
    """uvloop returns a handle without `when()` for a call that is due."""
    with (
        KafkaNode(clock=SlowClock(), initial_delay_s=_SHORT_MS / 1000) as node,
        RawClient(node) as first,
        RawClient(node) as second,
    ):
        first.sign_in()
        second.sign_in()

        for number in range(8):
            first.engine.request(a_join(group_id=f"first-{number}"), 3)
        first.socket.sendall(b"".join(first.engine.data_to_send()))
        second.send(a_join(group_id="second"), 3)

        assert [first.answer().error_code for _ in range(8)] == [ErrorCode.NONE] * 8
        assert second.answer().error_code == ErrorCode.NONE


def test_transaction_whose_deadline_is_due_does_not_close_the_next_connection() -> None:
    """Each transaction is aborted in time, even if other deadlines are set meanwhile."""
    with KafkaNode(clock=SlowClock()) as node, RawClient(node) as client:
        client.sign_in()
        names = [f"t{number}" for number in range(8)]
        for name in names:
            client.engine.request(an_init(name, transaction_timeout_ms=_SHORT_MS), 4)
        client.socket.sendall(b"".join(client.engine.data_to_send()))
        producers = [client.answer() for _ in names]

        for name, started in zip(names, producers, strict=True):
            enlisting = an_enlisting((started.producer_id, started.producer_epoch), 0)
            client.engine.request(replace(enlisting, transactional_id=name), 3)
        client.socket.sendall(b"".join(client.engine.data_to_send()))

        codes = [only(client.answer()).error_code for _ in names]
        assert codes == [ErrorCode.NONE] * 8
        assert any({state(client, name) for name in names} == {"CompleteAbort"} for _ in range(_LOOKS))


def state(client: RawClient, transactional_id: str) -> str:
    answer = client.call(DescribeTransactionsRequest(transactional_ids=(transactional_id,)), 0)
    return str(answer.transaction_states[0].transaction_state)
