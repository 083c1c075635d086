"""Idempotent producers: the id, epoch and last number with which a link starts, and the fencing of older links.

The log distinguishes repeats from gaps (reference: AMQP 4.5). This module reads and writes the three attach properties,
and fences links of one producer: once a link with a higher epoch is attached, deliveries on links with lower ones are
refused. Those stay attached, because SDKs report a fenced producer only when a send is refused.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from hubmere.endpoints.amqp.errors import InvalidProducerState
from hubmere.model.errors import InvalidArgument, ProducerFenced, ProducerRefused, Refusal
from hubmere.wire.amqp.codec.performatives import Attach
from hubmere.wire.amqp.codec.types import Int, Long, Short, Symbol, Value

CAPABILITY = "com.microsoft:idempotent-producer"
_ID = "com.microsoft:producer-id"
_EPOCH = "com.microsoft:producer-epoch"
_SEQUENCE = "com.microsoft:producer-sequence-number"

_MAX_ID = 2**63 - 1
_MAX_EPOCH = 2**15 - 1
_MAX_SEQUENCE = 2**31 - 1
# New ids lie between 2^52 and 2^53: above the ids that Kafka producers get, and exact as JavaScript numbers.
# With 52 random bits a collision is improbable for as long as a log remembers producers.
_RANDOM_BITS = 52
_FIRST_NEW_ID = 1 << _RANDOM_BITS

# Returns epoch and last sequence number of a producer in a log, if known.
LastSequence = Callable[[int], tuple[int, int] | None]
# Uid of the hub, partition, and id of the producer.
ProducerKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTerms:
    """What a link of an idempotent producer starts with; its next event has the number after `last_sequence`."""

    producer_id: int
    epoch: int
    last_sequence: int

    def properties(self) -> dict[Value, Value]:
        """The properties of the attach that answers the peer."""
        return {
            Symbol(_ID): Long(self.producer_id),
            Symbol(_EPOCH): Short(self.epoch),
            Symbol(_SEQUENCE): Int(self.last_sequence),
        }


def wants_idempotence(attach: Attach) -> bool:
    """Whether a sender asks for its events to be numbered."""
    return CAPABILITY in (attach.desired_capabilities or ())


def agree(asked: Mapping[Value, Value] | None, last_sequence_of: LastSequence) -> ProducerTerms:
    """The terms for a sender: its own id or a new one, and the number that it counts from.

    A sender that lost its connection names the last number that it knows was accepted, and sends later events again
    under the same numbers. If it got the log's last number instead, it would publish them twice.
    """
    properties = asked or {}
    producer_id = _number(properties, _ID, _MAX_ID)
    epoch = _number(properties, _EPOCH, _MAX_EPOCH)
    sequence = _number(properties, _SEQUENCE, _MAX_SEQUENCE)
    if producer_id is None:
        return ProducerTerms(producer_id=_new_id(), epoch=epoch or 0, last_sequence=sequence or 0)
    known = last_sequence_of(producer_id)
    if known is None:
        return ProducerTerms(producer_id=producer_id, epoch=epoch or 0, last_sequence=sequence or 0)
    last_epoch, last = known
    if epoch is not None and epoch < last_epoch:
        raise ProducerFenced(producer_id, epoch, last_epoch)
    if sequence is None:
        # Below zero: the producer has written only a transaction marker.
        sequence = max(last, 0)
    return ProducerTerms(producer_id=producer_id, epoch=last_epoch if epoch is None else epoch, last_sequence=sequence)


def _new_id() -> int:
    return _FIRST_NEW_ID + secrets.randbits(_RANDOM_BITS)


def _number(properties: Mapping[Value, Value], name: str, largest: int) -> int | None:
    value = properties.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"link property '{name}'", value, f"a number from 0 to {largest}")
    if not 0 <= value <= largest:
        raise InvalidProducerState
    return int(value)


class OldSequence(ProducerRefused):
    """The sequence numbers were used before, for other events."""

    def text(self) -> str:
        """Accepting it as a repeat, without storing it, would lose events."""
        return "The producer sent an old sequence number with a batch that is not a repeat of an earlier one."


class ProducerLink(Protocol):
    """A link of an idempotent producer."""

    @property
    def epoch(self) -> int:
        """The epoch of the producer."""

    def fence(self, refusal: Refusal) -> None:
        """Refuse all further deliveries with this reason."""


class Producers:
    """The open links of idempotent producers, over all connections of the node.

    Thread rule: the loop's thread only.
    """

    __slots__ = ("_links",)

    def __init__(self) -> None:
        self._links: dict[ProducerKey, list[ProducerLink]] = {}

    def check(self, key: ProducerKey, epoch: int) -> None:
        """Refuse a link if its producer has a link with a higher epoch."""
        current = max((link.epoch for link in self._links.get(key, ())), default=epoch)
        if epoch < current:
            raise ProducerFenced(key[2], epoch, current)

    def join(self, key: ProducerKey, link: ProducerLink) -> None:
        """Register a link, and fence the links with lower epochs."""
        links = self._links.setdefault(key, [])
        for other in [other for other in links if other.epoch < link.epoch]:
            other.fence(ProducerFenced(key[2], other.epoch, link.epoch))
        links.append(link)

    def leave(self, key: ProducerKey, link: ProducerLink) -> None:
        """Remove a link that is gone."""
        links = self._links.get(key, [])
        if link in links:
            links.remove(link)
        if not links:
            self._links.pop(key, None)
