"""Idempotent producers: which id, epoch and last number a link starts with, and which older links give way.

The log tells repeats from gaps (reference: AMQP 4.5); this module only reads and writes the three attach properties,
and keeps the links of one producer apart: once a higher epoch is there, what links of lower ones send is refused. They
stay attached, because SDKs tell their users of a superseded producer only when a send is refused for it.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

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
# New ids lie between 2^52 and 2^53: above every id that Kafka producers are given in turn, and still exact in
# JavaScript's numbers. 52 random bits make a second use of one improbable for as long as a log remembers producers.
_RANDOM_BITS = 52
_FIRST_NEW_ID = 1 << _RANDOM_BITS

# Epoch and last sequence number of a producer in a log.
Known = Callable[[int], tuple[int, int] | None]
# The log's hub and partition, and the producer's id.
ProducerKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTerms:
    """What a link of an idempotent producer starts with; its next event has the number after `last_sequence`."""

    producer_id: int
    epoch: int
    last_sequence: int

    def properties(self) -> dict[Value, Value]:
        """As the attach that answers tells them."""
        return {
            Symbol(_ID): Long(self.producer_id),
            Symbol(_EPOCH): Short(self.epoch),
            Symbol(_SEQUENCE): Int(self.last_sequence),
        }


def wants_idempotence(attach: Attach) -> bool:
    """Whether a sender asks for its events to be numbered."""
    return CAPABILITY in (attach.desired_capabilities or ())


def agree(asked: Mapping[Value, Value] | None, known: Known) -> ProducerTerms:
    """The terms for what a sender asked: an id of its own or a new one, and the number that it counts from.

    A sender that lost its connection asks for the last number of which it knows that it was accepted, and sends again
    what came after it under the same numbers: told the log's own last number instead, it would publish that twice.
    """
    properties = asked or {}
    producer_id = _number(properties, _ID, _MAX_ID)
    epoch = _number(properties, _EPOCH, _MAX_EPOCH)
    sequence = _number(properties, _SEQUENCE, _MAX_SEQUENCE)
    if producer_id is None:
        return ProducerTerms(producer_id=_new_id(), epoch=epoch or 0, last_sequence=sequence or 0)
    past = known(producer_id)
    if past is None:
        return ProducerTerms(producer_id=producer_id, epoch=epoch or 0, last_sequence=sequence or 0)
    last_epoch, last = past
    if epoch is not None and epoch < last_epoch:
        raise ProducerFenced(producer_id, epoch, last_epoch)
    if sequence is None:
        # Below zero: known by a transaction marker only.
        sequence = max(last, 0)
    return ProducerTerms(producer_id=producer_id, epoch=last_epoch if epoch is None else epoch, last_sequence=sequence)


def _new_id() -> int:
    return _FIRST_NEW_ID + secrets.randbits(_RANDOM_BITS)


def _number(properties: Mapping[Value, Value], name: str, largest: int) -> int | None:
    value = properties.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
        raise InvalidArgument(f"link property '{name}'", value, f"a number from 0 to {largest}")
    return int(value)


class OldSequence(ProducerRefused):
    """Numbers that were used before, for other events than these."""

    def text(self) -> str:
        """Unlike a repeat, accepting it without storing it would lose events."""
        return "The producer sent an old sequence number with a batch that is not a repeat of an earlier one."


class ProducerLink(Protocol):
    """A link of an idempotent producer."""

    @property
    def epoch(self) -> int:
        """The epoch with which it was attached."""

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
        """Refuse a link whose producer has a newer one open."""
        current = max((link.epoch for link in self._links.get(key, ())), default=epoch)
        if epoch < current:
            raise ProducerFenced(key[2], epoch, current)

    def join(self, key: ProducerKey, link: ProducerLink) -> None:
        """A link was attached: those of older epochs give way."""
        there = self._links.setdefault(key, [])
        for other in [other for other in there if other.epoch < link.epoch]:
            other.fence(ProducerFenced(key[2], other.epoch, link.epoch))
        there.append(link)

    def leave(self, key: ProducerKey, link: ProducerLink) -> None:
        """A link is gone."""
        there = self._links.get(key, [])
        if link in there:
            there.remove(link)
        if not there:
            self._links.pop(key, None)
