"""Subscriptions by regular expression, evaluated in linear time and in slices.

The syntax is RE2's, as in Apache Kafka (RE2/J): no look-around, no back-references. RE2 matches in time linear in the
name, but a long expression over many topics would still hold up the node. So an expression has a bounded size, and
each call spends at most the allowance that is left; what remains is done by later calls. Results are cached until the
topics change. The library is loaded with the first expression: it takes 2.4 MB, and few groups use one. Thread
rule: the owner's thread only.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from hubmere.broker.coordinator.consumer_group.assignments import TopicDirectory
from hubmere.broker.coordinator.refusals import InvalidRegex

# The longest expression, in characters: a hundred topic names of 40 characters as alternatives.
MAX_PATTERN_CHARS: Final = 4096
# The largest compiled expression, in RE2's instructions; `.{0,500}` has 4,500.
MAX_INSTRUCTIONS: Final = 5_000
# Memory of one compiled expression and its automaton.
_MAX_MEMORY_BYTES: Final = 1 << 18
# Compiled expressions that are kept; another one is compiled again when it is needed.
MAX_KEPT_PATTERNS: Final = 64
# Work of one slice, in characters times instructions: at most 2 ms, measured with expressions built to be slow.
SLICE: Final = 400_000


class _Pattern:
    """A compiled expression, and how far it has come through the topics."""

    __slots__ = ("_compiled", "_cost", "_names", "_revision", "matched")

    def __init__(self, group_id: str, text: str) -> None:
        self._compiled, self._cost = _compile(group_id, text)
        self._names: Iterator[str] = iter(())
        self._revision: int | None = None
        self.matched: set[str] = set()

    def advance(self, topics: TopicDirectory, allowance: int) -> tuple[bool, int]:
        """Evaluate topics until all are done or the allowance is spent; whether all are, and what is left."""
        if self._revision != topics.revision:
            self._revision, self._names, self.matched = topics.revision, iter(tuple(topics.names())), set()
        while allowance > 0:
            name = next(self._names, None)
            if name is None:
                return True, allowance
            if self._compiled.fullmatch(name):
                self.matched.add(name)
            allowance -= (len(name) + 1) * self._cost
        return False, allowance


class RegexResolver:
    """The topics that expressions match, for all groups of a namespace."""

    def __init__(self, topics: TopicDirectory) -> None:
        self._topics = topics
        self._patterns: OrderedDict[str, _Pattern] = OrderedDict()
        self._allowance = SLICE

    def refill(self) -> None:
        """Begin another slice."""
        self._allowance = SLICE

    def require_valid(self, group_id: str, text: str) -> None:
        """Refuse an expression that RE2 does not accept or that is too large."""
        self._pattern(group_id, text)

    def matches(self, group_id: str, text: str) -> frozenset[str] | None:
        """The topics that an expression matches now; None while this is still being evaluated."""
        pattern = self._pattern(group_id, text)
        is_complete, self._allowance = pattern.advance(self._topics, self._allowance)
        return frozenset(pattern.matched) if is_complete else None

    def _pattern(self, group_id: str, text: str) -> _Pattern:
        pattern = self._patterns.get(text)
        if pattern is None:
            pattern = self._patterns[text] = _Pattern(group_id, text)
            if len(self._patterns) > MAX_KEPT_PATTERNS:
                self._patterns.popitem(last=False)
        self._patterns.move_to_end(text)
        return pattern


def _compile(group_id: str, text: str) -> tuple[Any, int]:
    """An expression ready to match, and its number of instructions."""
    try:
        import re2
    except ImportError:  # no wheel for this platform
        reason = "this node has no engine for regular expressions (google-re2)"
        raise InvalidRegex(group_id, text, reason) from None
    if len(text) > MAX_PATTERN_CHARS:
        raise InvalidRegex(group_id, text[:80], f"it has more than {MAX_PATTERN_CHARS} characters")
    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(text, options)
    except re2.error as error:
        raise InvalidRegex(group_id, text, _reason(error)) from None
    size = compiled.programsize
    if size > MAX_INSTRUCTIONS:
        raise InvalidRegex(group_id, text, f"it needs {size} steps, at most {MAX_INSTRUCTIONS} are allowed")
    return compiled, size


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
