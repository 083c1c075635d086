"""Who asked for a change and what came of it: every change of the manager leaves one line in the audit log.

`audited` is put over a method that ends in `by, done`: the line is written when the change is durable, when it has
failed later, or when it was refused at once. What names the target are the leading arguments, as many as are said: keys
and other texts that come behind them never reach a line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from hubmere.model.errors import Refusal
from hubmere.store.audit import DONE, REFUSED, AuditLine, AuditLog

__all__ = ["AuditLine", "Audited", "Actor", "Done", "audited"]

Done = Callable[[Refusal | None], None]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks for a change, when and from where: for the audit log and for times."""

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


class Audited(Protocol):
    """Whose methods are audited."""

    @property
    def audit(self) -> AuditLog:
        """Where the lines go."""


_S = TypeVar("_S", bound=Audited)
_Method = Callable[Concatenate[_S, _P], _R]


def audited(names: int) -> Callable[[_Method[_S, _P, _R]], _Method[_S, _P, _R]]:
    """Have a method leave a line: `names` is how many of its leading arguments name the target."""

    def decorate(method: _Method[_S, _P, _R]) -> _Method[_S, _P, _R]:
        action = method.__name__.replace("_", " ")

        @wraps(method)
        def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            given: list[Any] = list(args)
            place = next(index for index, value in enumerate(given) if isinstance(value, Actor))
            actor, done = given[place], given[place + 1]
            target = _target(given[:names])

            def completed(refusal: Refusal | None) -> None:
                self.audit.write(actor.line(action, target, refusal))
                done(refusal)

            given[place + 1] = completed
            try:
                return method(self, *given, **kwargs)
            except Refusal as refusal:
                self.audit.write(actor.line(action, target, refusal))
                raise

        return call

    return decorate


def _target(names: Sequence[Any]) -> str:
    """What a change concerns, from the namespace down; an entity stands for its name."""
    return "/".join(str(getattr(name, "name", name)) for name in names if name is not None)
