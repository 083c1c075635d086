"""Creates the namespaces and hubs of the settings before the node opens its ports."""

import asyncio
import logging
from collections.abc import Callable

from hubmere.broker.broker import Broker
from hubmere.broker.management.manager import Actor
from hubmere.broker.provisioning import Creation, Provisioning, ProvisioningFailed, WantedHub
from hubmere.model.errors import AlreadyExists, Refusal
from hubmere.model.names import emulator_hub_name, hub_name
from hubmere.model.spec import HubSpec
from hubmere.settings import HubSetting, Settings

log = logging.getLogger("hubmere.node")


async def provision(settings: Settings, broker: Broker, actor: Callable[[], Actor]) -> None:
    """Create what is missing, one entity after the other; raises ProvisioningFailed at the first refusal."""
    check_hub_name = emulator_hub_name if settings.is_emulator else hub_name
    provisioning = Provisioning(broker.planned_entities, broker.manager, actor, check_hub_name=check_hub_name)
    hubs = [_wanted_hub(hub, settings.namespace) for hub in settings.hubs]
    for creation in provisioning.creations([settings.namespace], hubs):
        await _create(creation)
    for hub in provisioning.skipped_hubs:
        log.warning("event hub %s of the settings is not created: its namespace is a secondary", hub)


def _wanted_hub(hub: HubSetting, default_namespace: str) -> WantedHub:
    return WantedHub(
        namespace=hub.namespace or default_namespace,
        name=hub.name,
        spec=HubSpec(
            partition_count=hub.partition_count,
            retention_hours=hub.retention_hours,
            user_metadata=hub.user_metadata,
        ),
        groups=hub.consumer_groups,
    )


async def _create(creation: Creation) -> None:
    created: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
    try:
        creation.start(created.set_result)
        refusal = await created
        # Gateways of one cluster start at the same time: another one may have been faster.
        if refusal is not None and not isinstance(refusal, AlreadyExists):
            raise refusal
    except Refusal as refusal:
        raise ProvisioningFailed(creation.entity, refusal) from None
