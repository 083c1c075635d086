"""Places: who may read a partition in a consumer group. An interface; on a cluster, `cluster.control.places` decides.

On one node `Readers` decides. On a cluster the decision takes a moment, and readers of other gateways take part in it:

1. `Places.take` returns a place that was granted to such a reader. Until then it raises a wait, as for a log that is
   being opened, or the refusal.
2. The reader delivers while `Place.may_deliver`: a gateway that is cut off from the others must stop by itself.
3. `on_lost` is called once when the reader must give way. The endpoint has stopped when that call returns.
4. `release` gives the place back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hubmere.model.errors import Refusal

OnLost = Callable[[Refusal], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """A reader's request for a place. `limit` is the number of readers without an epoch that may share a place."""

    hub_uid: str
    group: str
    partition: int
    epoch: int | None
    name: str
    limit: int | None


class Place(Protocol):
    """A place that was granted to one reader."""

    @property
    def may_deliver(self) -> bool:
        """Whether the reader may be sent anything now."""

    def hold(self, on_lost: OnLost) -> None:
        """A reader uses the place from now on."""

    def release(self) -> None:
        """The reader is closed, and nothing more is sent to it; releasing twice is harmless."""


class Places(Protocol):
    """The places of a cluster. Thread rule: the owner's thread only."""

    def take(self, request: PlaceRequest, on_answer: Callable[[], None]) -> Place | None:
        """A place that was granted to this request; None if it is being asked for, then `on_answer` is called.

        Raises why it is refused.
        """
