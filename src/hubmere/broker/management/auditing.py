"""The audit trail of management: who asked for a change, and its outcome.

Each method of the `Manager` opens an `AuditedChange` around its work. The change leaves exactly one audit line:

1. when the work is refused at once (a `Refusal` leaves the block), or
2. when the catalog has completed the submitted steps, durable or refused.

A change that was refused at once is answered only after `AuditLog.when_written`: endpoints and portal see to that. The
method names the action and the target itself. Keys and other secrets are never part of either.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from hubmere.model.errors import PartitionOpening, Refusal
from hubmere.store.audit import DONE, REFUSED, AuditLine, AuditLog
from hubmere.store.catalog.view import Step

__all__ = ["Actor", "AuditLine", "AuditLog", "AuditedChange", "OnDone", "Submit"]

# Called once with the outcome of a change: None when it is durable.
OnDone = Callable[[Refusal | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks for a change, when and from where. `now` is monotonic, `now_ms` wall time."""

    name: str
    now_ms: int
    now: float
    peer: str = ""
    tracking_id: str = ""

    def line(self, action: str, target: str, refusal: Refusal | None = None) -> AuditLine:
        """A line of the audit log."""
        return AuditLine(
            at_ms=self.now_ms,
            actor=self.name,
            peer=self.peer,
            action=action,
            target=target,
            outcome=DONE if refusal is None else REFUSED,
            reason="" if refusal is None else type(refusal).__name__,
            tracking_id=self.tracking_id,
        )


Submit = Callable[[Sequence[Step], Actor, OnDone], None]


class AuditedChange:
    """One change and its audit line; a context manager around the checks and the submission.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_action", "_actor", "_audit", "_on_done", "_submit", "_target")

    def __init__(
        self, audit: AuditLog, submit: Submit, *, action: str, target: str, actor: Actor, on_done: OnDone
    ) -> None:
        self._audit = audit
        self._submit = submit
        self._action = action
        self._target = target
        self._actor = actor
        self._on_done = on_done

    def __enter__(self) -> Self:
        """Begin the change."""
        return self

    def submit(self, steps: Sequence[Step]) -> None:
        """Submit checked steps to the catalog; the audit line and `on_done` follow when they are complete."""
        self._submit(steps, self._actor, self._on_complete)

    def _on_complete(self, refusal: Refusal | None) -> None:
        line = self._actor.line(self._action, self._target, refusal)
        self._audit.write(line, lambda: self._on_done(refusal))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Audit a change that was refused at once; the refusal is passed on to the caller.

        A change that has to wait for a log is not refused: it is made, and audited, when the log is open.
        """
        if isinstance(error, Refusal) and not isinstance(error, PartitionOpening):
            self._audit.write(self._actor.line(self._action, self._target, error))
