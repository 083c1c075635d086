"""A clock that tests set."""


class ManualClock:
    """A `model.clock.Clock` whose time changes only when a test advances it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 UTC."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Advance both clocks."""
        assert seconds >= 0
        self._now_ms += round(seconds * 1000)
        self._monotonic_s += seconds

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, also backwards, as operators and time servers do; the monotonic clock does not change."""
        self._now_ms = now_ms
