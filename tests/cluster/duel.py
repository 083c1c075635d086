"""Exclusive readers that displace each other on random gateways, while numbered events arrive.

A reader may still receive what was sent to it before it was displaced. So the check is about events that did not exist
then: an event that was sent after a reader with a higher epoch had received one must not reach a reader with a lower.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

from azure.eventhub import EventData, EventHubConsumerClient

from cluster.machines import GatewayProcess, Machines
from cluster.running import PATIENCE_S
from hubmere.client.amqp import AmqpFailure, AmqpPeer
from hubmere.model.security.connection_string import ConnectionString
from hubmere.wire.amqp.codec.performatives import Source, Target
from hubmere.wire.amqp.codec.types import Described, Long, Symbol, Value
from hubmere.wire.amqp.signals import LinkAttached

_ATTACH_SECONDS = 20.0
# How many displaced readers are watched.
_KEPT = 3
_CREDIT = 500
# Followers without an epoch read in the default group: the two kinds exclude each other.
GROUP = "duel"


class Owner(ABC):
    """One reader of partition 0 with an epoch: what it received, and when it received its first event."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.bodies: list[str] = []
        self.first_at = 0.0
        self.has_ended = threading.Event()

    def note(self, body: str) -> None:
        """An event was received."""
        self.first_at = self.first_at or time.monotonic()
        self.bodies.append(body)

    @abstractmethod
    def close(self) -> None:
        """Detach."""


class SdkOwner(Owner):
    """The Azure SDK, which attaches again after it was displaced, and is refused."""

    def __init__(self, gateway: GatewayProcess, hub: str, epoch: int) -> None:
        super().__init__(epoch)
        self._client = EventHubConsumerClient.from_connection_string(
            gateway.connection_string, GROUP, eventhub_name=hub, retry_total=0
        )
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        with suppress(Exception):
            self._client.receive(
                self._on_event,
                on_error=lambda *_: self.has_ended.set(),
                partition_id="0",
                starting_position="@latest",
                owner_level=self.epoch,
            )
        self.has_ended.set()

    def _on_event(self, _: object, event: EventData | None) -> None:
        if event is not None:
            self.note(event.body_as_str())

    def close(self) -> None:
        """Detach."""
        with suppress(Exception):
            self._client.close()
        self._thread.join(PATIENCE_S)


class _EpochPeer(AmqpPeer):
    """Our own client, with an epoch."""

    def own(self, hub: str, epoch: int) -> None:
        """Read partition 0 from its end, as its owner."""
        assert self._session is not None
        selector = Symbol("apache.org:selector-filter:string")
        source = Source(
            address=f"{hub}/ConsumerGroups/{GROUP}/Partitions/0",
            filter={selector: Described(selector, "amqp.annotation.x-opt-offset > '@latest'")},
        )
        properties: dict[Value, Value] = {Symbol("com.microsoft:epoch"): Long(epoch)}
        link = self._session.attach("own", is_sender=False, source=source, target=Target(), properties=properties)
        self._expect(LinkAttached)
        self._left[link] = _CREDIT
        link.grant(_CREDIT)
        self._flush()


class QuickOwner(Owner):
    """Our own client: it needs little of the processor, so that there can be many takeovers in a minute."""

    def __init__(self, gateway: GatewayProcess, hub: str, epoch: int) -> None:
        super().__init__(epoch)
        self._gateway = gateway
        self._hub = hub
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        parts = ConnectionString.parse(self._gateway.connection_string)
        host, _, port = str(self._gateway.ready["amqp"]).rpartition(":")
        with suppress(AmqpFailure, OSError):
            peer = _EpochPeer(host, int(port), parts.key_name or "", parts.key or "", container_id=f"e{self.epoch}")
            with peer:
                peer.own(self._hub, self.epoch)
                while not self._stopping.is_set():
                    for body in peer.receive_bodies(0.2):
                        self.note(body.decode())
        self.has_ended.set()

    def close(self) -> None:
        """Detach."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)


class Duel(threading.Thread):
    """Owners with rising epochs, one after the other, until it is stopped."""

    def __init__(
        self,
        machines: Machines,
        hub: str,
        seed: int,
        *,
        owner_seconds: tuple[float, float] = (0.2, 1.5),
        owner: Callable[[GatewayProcess, str, int], Owner] = SdkOwner,
    ) -> None:
        """`owner_seconds`: how long an owner has before the next one displaces it; `owner`: the kind of client."""
        super().__init__(daemon=True)
        self._new_owner = owner
        self._owner_seconds = owner_seconds
        self.owners: list[Owner] = []
        self._machines = machines
        self._hub = hub
        self._chance = random.Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        epoch = 0
        while not self._stopping.is_set():
            epoch += 1
            owner = self._new_owner(self._chance.choice(self._machines.gateways), self._hub, epoch)
            self.owners.append(owner)
            deadline = time.monotonic() + _ATTACH_SECONDS
            while not owner.first_at and not owner.has_ended.is_set() and time.monotonic() < deadline:
                time.sleep(0.01)
            self._stopping.wait(self._chance.uniform(*self._owner_seconds) if owner.first_at else 0.1)
            for old in self.owners[-_KEPT - 1 : -_KEPT]:
                old.close()

    def stop(self) -> None:
        """End all readers."""
        self._stopping.set()
        self.join(PATIENCE_S)
        for owner in self.owners[-_KEPT - 1 :]:
            owner.close()

    @property
    def steals(self) -> int:
        """How many readers have become owners after another one."""
        return max(sum(bool(owner.first_at) for owner in self.owners) - 1, 0)

    def overlaps(self, sent_at: Mapping[str, float]) -> list[str]:
        """Events that reached a displaced reader although they were sent after its successor was there."""
        served = [owner for owner in self.owners if owner.first_at]
        found = []
        for old, new in pairwise(served):
            late = [body for body in old.bodies if sent_at.get(body, 0.0) > new.first_at]
            found += [f"{body} to epoch {old.epoch}, and epoch {new.epoch} was there" for body in late]
        return found
