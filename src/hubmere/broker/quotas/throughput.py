"""Throughput units: the ingress and egress limits of a namespace, shared fairly by its hubs.

One unit is 1 MB/s or 1,000 events/s in, and 2 MB/s or 4,096 events/s out (reference: service 5). A publication
over the limit is refused as a whole (AMQP, HTTP) or accepted with a delay (Kafka); reads are delayed. Nothing here
waits or reads a clock: time is an argument, in monotonic seconds.
"""

from dataclasses import dataclass
from typing import ClassVar

from hubmere.model.errors import ServerBusy, ThrottledTooLong

# A bucket holds one second of allowance: the service publishes no burst, and one second hides scheduling jitter.
BURST_SECONDS = 1.0
# A hub that was idle for this long no longer gets a share of the allowance.
ACTIVE_SECONDS = 2.0
# Refilling walks the active hubs, so it is done at most this often while there are tokens left.
_REFILL_SECONDS = 0.005
# Upper bound of hubs among which one bucket is shared at a time; the least recently used gives way.
_MAX_SHARES = 4096
# Retry-after that clients get; SDKs wait four seconds on this error in any case.
RETRY_AFTER_SECONDS = 4.0


class _Share:
    __slots__ = ("seen_at", "tokens")

    def __init__(self, tokens: float, now: float) -> None:
        self.tokens = tokens
        self.seen_at = now


class FairBucket:
    """A token bucket whose refill is divided evenly among the active hubs; unused tokens go to all.

    1. Each active hub owns `rate / active` of the refill, up to its part of the burst.
    2. What exceeds that, and all of it while no hub is active, goes into a common part that any hub may use.
    3. So the total never exceeds `rate` plus one burst, a single hub gets all of it, and a hub that floods cannot push
       another below its share.
    """

    __slots__ = ("_burst_s", "_common", "_filled_at", "_rate", "_shares")

    def __init__(self, rate_per_s: float, now: float, *, burst_s: float = BURST_SECONDS) -> None:
        self._rate = rate_per_s
        self._burst_s = burst_s
        self._common = rate_per_s * burst_s
        self._filled_at = now
        self._shares: dict[str, _Share] = {}

    @property
    def capacity(self) -> float:
        """Maximum number of tokens. A larger publication needs only a full bucket."""
        return self._rate * self._burst_s

    def change_rate(self, rate_per_s: float, now: float) -> None:
        """Change the rate at once; saved tokens are kept, within the new burst."""
        self._refill(now)
        self._rate = rate_per_s
        part = self.capacity / max(len(self._shares), 1)
        for share in self._shares.values():
            share.tokens = min(share.tokens, part)
        self._common = min(self._common, self.capacity)

    def missing(self, hub: str, amount: float, now: float) -> float:
        """How many tokens `hub` lacks for `amount`; 0 if it may proceed.

        A publication larger than the whole bucket is admitted when the bucket is full (reference: service 5).
        """
        share = self._touch(hub, now)
        wanted = min(amount, self.capacity)
        have = share.tokens + max(self._common, 0.0)
        if have < wanted and now > self._filled_at:
            self._refill(now)
            have = share.tokens + max(self._common, 0.0)
        # Half a token of tolerance for rounding errors of the shares.
        return max(0.0, wanted - have - 0.5)

    def spend(self, hub: str, amount: float, now: float) -> None:
        """Take tokens, the hub's own first; the balance may become negative and is paid back by later refills."""
        share = self._touch(hub, now)
        own = min(amount, max(share.tokens, 0.0))
        share.tokens -= own
        self._common -= amount - own

    def holds_more_than(self, hub: str, amount: float, now: float) -> bool:
        """Whether `hub` could spend `amount`, in any pieces, without a negative balance."""
        share = self._shares.get(hub)
        if share is not None and share.tokens + self._common > amount:
            return True
        return self._touch(hub, now).tokens + self._common > amount

    def debt_seconds(self, hub: str, now: float) -> float:
        """Seconds until `hub` has tokens again; 0 if it has some now."""
        share = self._shares.get(hub)
        if share is not None and share.tokens + self._common > 0:
            return 0.0
        share = self._touch(hub, now)
        if share.tokens + self._common > 0:
            return 0.0
        self._refill(now)
        balance = share.tokens + self._common
        return 0.0 if balance > 0 else -balance / self._rate + _REFILL_SECONDS

    def _touch(self, hub: str, now: float) -> _Share:
        share = self._shares.get(hub)
        if share is None:
            self._refill(now)
            if len(self._shares) >= _MAX_SHARES:
                self._drop(min(self._shares, key=lambda name: self._shares[name].seen_at))
            share = self._shares[hub] = _Share(0.0, now)
            self._level()
        share.seen_at = now
        if now - self._filled_at >= _REFILL_SECONDS:
            self._refill(now)
        return share

    def _refill(self, now: float) -> None:
        added = (now - self._filled_at) * self._rate
        if added <= 0:
            return
        self._filled_at = now
        for name in [name for name, share in self._shares.items() if now - share.seen_at > ACTIVE_SECONDS]:
            self._drop(name)
        if self._common < 0:
            # Debts of past bursts are paid before hubs get new tokens.
            paid = min(added, -self._common)
            self._common += paid
            added -= paid
        self._deal(added)

    def _deal(self, added: float) -> None:
        active = len(self._shares)
        overflow = 0.0 if active else added
        for share in self._shares.values():
            room = max(0.0, self.capacity / active - share.tokens)
            part = min(room, added / active)
            share.tokens += part
            overflow += added / active - part
        owned = sum(share.tokens for share in self._shares.values())
        self._common = min(self._common + overflow, max(0.0, self.capacity - owned))

    def _level(self) -> None:
        """A hub was added: move what the others hold above their new, smaller parts into the common part."""
        part = self.capacity / len(self._shares)
        for share in self._shares.values():
            surplus = max(0.0, share.tokens - part)
            share.tokens -= surplus
            self._common += surplus

    def _drop(self, name: str) -> None:
        self._common += self._shares.pop(name).tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Limits of a namespace per second."""

    ingress_bytes: float
    ingress_events: float
    egress_bytes: float
    egress_events: float


class Throughput:
    """The pools of one namespace: ingress and egress, each by bytes and by events, shared by all its hubs.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_in_bytes", "_in_events", "_out_bytes", "_out_events", "last_throttled_at", "was_throttled")
    bucket_type: ClassVar[type[FairBucket]] = FairBucket

    def __init__(self, rates: Rates, now: float) -> None:
        bucket = self.bucket_type
        self._in_bytes = bucket(rates.ingress_bytes, now)
        self._in_events = bucket(rates.ingress_events, now)
        self._out_bytes = bucket(rates.egress_bytes, now)
        self._out_events = bucket(rates.egress_events, now)
        # For auto-inflate, which resets the first one: whether a client was throttled, and when that was last.
        self.was_throttled = False
        self.last_throttled_at = float("-inf")

    def change_rates(self, rates: Rates, now: float) -> None:
        """Scale up or down, effective at once."""
        self._in_bytes.change_rate(rates.ingress_bytes, now)
        self._in_events.change_rate(rates.ingress_events, now)
        self._out_bytes.change_rate(rates.egress_bytes, now)
        self._out_events.change_rate(rates.egress_events, now)

    def require_ingress(self, hub: str, size_bytes: int, events: int, now: float) -> None:
        """Refuse a publication beyond the throughput units; nothing is charged yet."""
        if self._in_bytes.missing(hub, size_bytes, now) or self._in_events.missing(hub, events, now):
            self._record_throttling(now)
            raise ServerBusy(RETRY_AFTER_SECONDS)

    def require_ingress_delay(self, hub: str, max_delay_s: float, now: float) -> None:
        """Refuse a publication of a client that must be delayed longer than it is willing to wait (Kafka)."""
        delay_s = self._ingress_debt(hub, now)
        if delay_s > max_delay_s:
            raise ThrottledTooLong(delay_s, max_delay_s)

    def has_ingress(self, hub: str, size_bytes: int, events: int, now: float) -> bool:
        """Whether this much can be charged, in any pieces, without any delay."""
        return self._in_bytes.holds_more_than(hub, size_bytes, now) and self._in_events.holds_more_than(
            hub, events, now
        )

    def charge_ingress(self, hub: str, size_bytes: int, events: int, now: float) -> None:
        """Charge what was published; a negative balance delays or refuses the next publication."""
        self._in_bytes.spend(hub, size_bytes, now)
        self._in_events.spend(hub, events, now)

    def ingress_delay(self, hub: str, now: float) -> float:
        """Seconds for which a client that publishes to this hub should pause; 0 if it is within its share."""
        return self._record_delay(self._ingress_debt(hub, now), now)

    def _ingress_debt(self, hub: str, now: float) -> float:
        return max(self._in_bytes.debt_seconds(hub, now), self._in_events.debt_seconds(hub, now))

    def egress_delay(self, hub: str, now: float) -> float:
        """Seconds until events of this hub may be delivered again; 0 if they may now."""
        return self._record_delay(
            max(self._out_bytes.debt_seconds(hub, now), self._out_events.debt_seconds(hub, now)), now
        )

    def charge_egress(self, hub: str, size_bytes: int, events: int, now: float) -> None:
        """Charge what was delivered; a negative balance delays the next delivery."""
        self._out_bytes.spend(hub, size_bytes, now)
        self._out_events.spend(hub, events, now)

    def _record_delay(self, delay: float, now: float) -> float:
        if delay > 0:
            self._record_throttling(now)
        return delay

    def _record_throttling(self, now: float) -> None:
        self.was_throttled = True
        self.last_throttled_at = now
