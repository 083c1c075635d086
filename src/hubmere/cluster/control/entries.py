"""The entries of the control log, and their bytes: one JSON object each.

A gateway that reads an entry which it cannot decode must stop serving management; otherwise its state would differ from
that of the others. `decode_entry` therefore raises UnreadableEntry and never skips an entry.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final


class UnreadableEntry(Exception):
    """An entry of an unknown kind, or one that is no entry at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A row that a change depends on: its version when the change was planned, 0 if it did not exist."""

    key: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A row to write, or to remove if `value` is None. The state machine does not look into values."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A conditional change of rows: accepted if every condition still holds, otherwise without effect."""

    id: str
    session: str
    conditions: tuple[Condition, ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A gateway begins to take part. All but `session` is for operators; `process` is equal in all of its sessions."""

    session: str
    address: str = ""
    version: str = ""
    machine: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A gateway is alive. A gateway sends the next beat only after the previous one came back to it."""

    session: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A gateway is declared dead by another: accepted if it has been silent for long enough.

    `address` and `machine` are those of the dead one, for operators.
    """

    session: str
    address: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A gateway has stopped cleanly: it has released everything and delivers nothing more."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A reader asks for a partition in a consumer group.

    `limit` is the number of readers without an epoch that the tier allows; None if it does not limit them.
    """

    id: str
    session: str
    place: str
    epoch: int | None
    name: str
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A gateway asks for a role of which there is one holder in the cluster."""

    id: str
    session: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The gateway of a claim or a role delivers nothing on it any more."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Every gateway computes the digest of its state here; the gateway of `session` writes a snapshot of that state."""

    id: str
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state behind a checkpoint, at the entry `offset`, was written and has this digest."""

    id: str
    offset: int
    digest: str


Entry = Change | Session | Beat | Gone | Leave | Claim | Role | Release | Checkpoint | Snapshot

_KINDS: Final[dict[str, type[Any]]] = {
    "change": Change,
    "session": Session,
    "beat": Beat,
    "gone": Gone,
    "leave": Leave,
    "claim": Claim,
    "role": Role,
    "release": Release,
    "checkpoint": Checkpoint,
    "snapshot": Snapshot,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry."""
    return json.dumps({"kind": _NAMES[type(entry)], **asdict(entry)}, separators=(",", ":")).encode()


def decode_entry(data: bytes | memoryview) -> Entry:
    """Read an entry. Unknown fields are ignored, so that a newer release may add some; unknown kinds are not."""
    try:
        values = json.loads(bytes(data))
        kind = _KINDS[values.pop("kind")]
        known = {field.name for field in fields(kind)}
        values = {name: value for name, value in values.items() if name in known}
        if kind is Change:
            values["conditions"] = tuple(Condition(**condition) for condition in values["conditions"])
            values["writes"] = tuple(Write(**write) for write in values["writes"])
        entry: Entry = kind(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableEntry(f"{bytes(data[:200])!r}: {error!r}") from error
    return entry
