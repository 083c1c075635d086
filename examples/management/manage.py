"""Create a hub with a consumer group and a key of its own with azure-mgmt-eventhub, show them, and delete them."""

import os
import time
from typing import Any

from azure.core.credentials import AccessToken, AccessTokenInfo
from azure.mgmt.eventhub import EventHubManagementClient
from azure.mgmt.eventhub.models import AuthorizationRule, ConsumerGroup, Eventhub

# A node takes any subscription and any resource group.
SUBSCRIPTION, GROUP = "00000000-0000-0000-0000-000000000000", "local"


class AdminToken:
    """The administrator's token of a node, as a credential of the SDK."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """For clients that ask the old way."""
        return AccessToken(os.environ["HUBMERE_ADMIN_TOKEN"], int(time.time()) + 3600)

    def get_token_info(self, *scopes: str, options: Any = None) -> AccessTokenInfo:
        """For clients that ask the new way."""
        return AccessTokenInfo(os.environ["HUBMERE_ADMIN_TOKEN"], int(time.time()) + 3600)


client = EventHubManagementClient(
    AdminToken(),
    SUBSCRIPTION,
    base_url=os.environ["HUBMERE_HTTPS"],
    connection_verify=os.environ["HUBMERE_CA_FILE"],
)
place = (GROUP, os.environ["EVENTHUB_NAMESPACE"])
with client:
    client.event_hubs.create_or_update(*place, "returns", Eventhub(partition_count=2))
    client.consumer_groups.create_or_update(*place, "returns", "audit", ConsumerGroup())
    client.event_hubs.create_or_update_authorization_rule(
        *place, "returns", "sender", AuthorizationRule(rights=["Send"])
    )
    for hub in client.event_hubs.list_by_namespace(*place):
        print(f"{hub.name}: {hub.partition_count} partitions, kept for {hub.message_retention_in_days} days")
    keys = client.event_hubs.list_keys(*place, "returns", "sender")
    print("sends to:", keys.primary_connection_string.partition(";EntityPath=")[2])
    client.event_hubs.delete(*place, "returns")
