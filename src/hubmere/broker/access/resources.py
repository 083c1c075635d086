"""Resources: the paths below a namespace on which a client needs a right."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hubmere.model.names import fold

# Rights are checked for the same paths repeatedly; readers of a partition share one object.
_CACHED_RESOURCES: Final = 4096


@dataclass(frozen=True, slots=True)
class Resource:
    """A path below a namespace, folded, without slashes at its ends; `hub` is the hub that the path belongs to.

    `is_messages` means the events of the path: then a credential for `path/messages` is enough, which is the URL that
    devices post to and that most of them sign.
    """

    namespace: str
    hub: str = ""
    path: str = ""
    is_messages: bool = False

    @classmethod
    def of_namespace(cls, namespace: str) -> "Resource":
        """The namespace itself."""
        return cls(fold(namespace))

    @classmethod
    def of_hub(cls, namespace: str, hub: str, *below: str, is_messages: bool = False) -> "Resource":
        """A hub, or a path below it: `consumergroups`, a group, `partitions`, an id."""
        return cls(fold(namespace), fold(hub), fold("/".join((hub, *below))), is_messages)

    def __str__(self) -> str:
        """The form in which refusals name the resource."""
        return f"{self.namespace}/{self.path}" if self.path else self.namespace


@lru_cache(maxsize=_CACHED_RESOURCES)
def events_of(namespace: str, hub: str, *below: str) -> Resource:
    """The resource that a client publishes to or reads from: the events below a path."""
    return Resource.of_hub(namespace, hub, *below, is_messages=True)


def path_below(
    *, group: str | None = None, partition: str | None = None, publisher: str | None = None
) -> tuple[str, ...]:
    """The path below a hub by which rights are scoped."""
    return (
        *(() if group is None else ("consumergroups", group)),
        *(() if partition is None else ("partitions", partition)),
        *(() if publisher is None else ("publishers", publisher)),
    )
