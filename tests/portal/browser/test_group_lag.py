"""Lag of Kafka groups, as an operator reads it."""

from confluent_kafka import Consumer
from playwright.sync_api import expect

from portal.browser.visitor import Visitor


def test_partition_without_a_committed_offset_shows_no_lag(admin: Visitor) -> None:
    """Nobody knows where such a member reads: 0 would say that it has read everything."""
    admin.add_hub("uncommitted", partitions=1)
    admin.publish("uncommitted", "1")
    consumer = Consumer(admin.node.kafka_config("starting", enable_auto_commit="false"))
    consumer.subscribe(["uncommitted"])
    try:
        assert consumer.poll(120) is not None

        admin.open("/group?protocol=Kafka&group=starting", "starting")

        cells = admin.rows_of("Partitions", "uncommitted").locator("td")
        expect(cells.nth(3)).to_have_text("1")
        expect(cells.nth(4)).to_have_text("unknown")
    finally:
        consumer.close()
