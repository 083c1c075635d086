"""Checks that several kinds of entities share: ranges, counts, status and user metadata."""

from hubmere.model.entity import (
    Status,
)
from hubmere.model.errors import InvalidArgument, LimitReached

USER_METADATA_CHARACTERS = 1024


def check_limit(what: str, existing: int, limit: int | None, setting: str | None = None) -> None:
    """Raise LimitReached if the limit leaves no room for one more; `setting` is the field of `Limits` that sets it."""
    if limit is not None and existing >= limit:
        raise LimitReached(what, limit, setting)


def check_range(
    name: str,
    value: int,
    lowest: int,
    highest: int | None,
    highest_setting: str | None = None,
    lowest_setting: str | None = None,
) -> int:
    """The value if it is in the range; a refusal names the field of `Limits` that sets the end that was passed.

    No tier allows less than 1, so no setting is named for that.
    """
    if value >= lowest and (highest is None or value <= highest):
        return value
    allowed = f"at least {lowest}" if highest is None else f"between {lowest} and {highest}"
    setting = highest_setting if value >= lowest else lowest_setting if value > 0 else None
    if setting is not None:
        allowed += f"; the setting limits.{setting} changes it, and --as unlimited lifts all limits"
    raise InvalidArgument(name, value, allowed)


def check_status(status: Status) -> Status:
    if not status.is_settable:
        raise InvalidArgument("status", status.value, "Active, Disabled, SendDisabled or ReceiveDisabled")
    return status


def check_metadata(text: str) -> str:
    if len(text) > USER_METADATA_CHARACTERS:
        raise InvalidArgument("user metadata", text, f"at most {USER_METADATA_CHARACTERS} characters")
    return text


def check_count(what: str, count: int, limit: int | None, setting: str | None = None) -> None:
    if limit is not None and count > limit:
        raise LimitReached(what, limit, setting)
