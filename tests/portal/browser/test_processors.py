"""Event processors in the portal: their state in the node's blobs, problems, and resets."""

from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.storage.blob import ContainerClient
from playwright.sync_api import expect

from portal.browser.visitor import Visitor

_PLACE = {
    "fully_qualified_namespace": "localhost", "eventhub_name": "processed", "consumer_group": "$Default",
    "partition_id": "0",
}  # fmt: skip


def test_processors_are_shown_with_owner_and_lag_and_reset_after_a_preview(admin: Visitor) -> None:
    """The page warns about an owner that moves; a reset shows the new checkpoints before it writes them."""
    admin.add_hub("processed")
    for _ in range(5):
        admin.rest("POST", "processed/partitions/0/messages", content=b"x")
    storage = admin.node.blob_connection_string
    with ContainerClient.from_connection_string(storage, "portal-checkpoints") as client:
        client.create_container()
    with BlobCheckpointStore.from_connection_string(storage, "portal-checkpoints") as store:
        [owned] = store.claim_ownership([{**_PLACE, "owner_id": "worker-1"}])
        for owner in ("worker-2", "worker-3"):
            [owned] = store.claim_ownership([{**owned, "owner_id": owner}])
        store.update_checkpoint({**_PLACE, "offset": "100", "sequence_number": 1})

        admin.open("/processors", "Event processors")
        row = admin.rows_of("Partitions", "worker-3")
        expect(row).to_contain_text("the owner moved 2 times in a minute")
        expect(admin.page.get_by_text("Moving owner: processed/0 as $default")).to_be_visible()
        expect(admin.rows_of("Groups of processors", "processed")).to_contain_text("3")

        admin.page.get_by_role("button", name="Reset processed").click()
        admin.button("Preview").click()
        dialog = admin.page.get_by_role("dialog")
        expect(dialog.locator("tbody tr").first).to_contain_text("2")
        dialog.get_by_role("button", name="Reset", exact=True).click()
        admin.expect_notification("still has members")
        store.claim_ownership([{**owned, "owner_id": ""}])
        dialog.get_by_role("button", name="Reset", exact=True).click()

        admin.expect_notification("The checkpoints of 2 partitions were reset.")
        checkpoints = {one["partition_id"]: one for one in store.list_checkpoints("localhost", "processed", "$Default")}
        assert checkpoints["0"]["offset"] == "-1"
