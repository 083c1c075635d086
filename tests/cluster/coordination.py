"""A gateway's coordination in front of a cluster that a test plays."""

import asyncio
from typing import cast

from hubmere.cluster.forwarding import KafkaCoordination
from hubmere.cluster.upstream.upstream import Upstream

CLIENT = "client"


def a_coordination(cluster: object) -> KafkaCoordination:
    """Coordination with one client, `CLIENT`."""
    coordination = KafkaCoordination(
        cast("Upstream", cluster),
        "test.",
        provide=lambda uid: asyncio.sleep(0),
        failed=RuntimeError,
        note_transaction=lambda producer, name, epoch: None,
    )
    coordination.begin_client(CLIENT, "a consumer")
    return coordination
