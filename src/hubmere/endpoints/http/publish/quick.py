"""Publications that are whole when they are read: published at once, without a task of their own.

A device's event mostly comes in one packet with its head. Then nothing has to be waited for but the group commit, and
the answer can be written by the call that tells of it; a task, a future and a timer for each event would cost more than
the event. Whatever is not quite ordinary about a request goes the common way, before anything has happened.
"""

from collections.abc import Callable
from typing import Any

from hubmere.endpoints.http.context import Scope
from hubmere.endpoints.http.publish.send import CachedRequestHead
from hubmere.endpoints.http.publish.shares import Waiter

# Takes a whole request, who waits for its answer, and what the connection's last one left for it; gives back what is
# left for the next one, or None when it has to go the common way, and nothing was done.
Door = Callable[[Scope, bytes, Waiter, CachedRequestHead | None], CachedRequestHead | None]
# Answers a request on its cycle: None when it was taken, else what refused it.
Answer = Callable[[Any, Exception | None], None]


class PendingResponse:
    """The one answer of a request that is not a task; looks like a future to who settles it.

    Thread rule: the node's loop only.
    """

    __slots__ = ("_answer", "_cycle")

    def __init__(self, answer: Answer, cycle: Any) -> None:
        self._answer: Answer | None = answer
        self._cycle = cycle

    def done(self) -> bool:
        """Whether it was given."""
        return self._answer is None

    def set_result(self, _result: None, /) -> None:
        """The event is durable."""
        self._give(None)

    def set_exception(self, exception: BaseException, /) -> None:
        """The event is refused; only refusals and errors of the disk come here."""
        assert isinstance(exception, Exception)
        self._give(exception)

    def _give(self, error: Exception | None) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        answer(self._cycle, error)
