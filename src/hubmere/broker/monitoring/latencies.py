"""Latencies that the node measures, as histograms for monitoring. Thread rule: the owner's thread only."""

from hubmere.model.monitoring.histogram import Histogram


class Latencies:
    """The histograms of one node."""

    def __init__(self) -> None:
        # From an append to the acknowledgement of its group commit. The node sets the store's own histogram here.
        self.commit = Histogram()
        # From the arrival of a Kafka fetch to its answer; a fetch waits for events on purpose.
        self.fetch_wait = Histogram()
