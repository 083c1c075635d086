"""Findings of the doctor about event processors that keep their checkpoints on this node."""

from collections.abc import Iterable, Iterator

from hubmere.broker import ProcessorState
from hubmere.portal.doctor.finding import Finding, Severity


def processor_findings(states: Iterable[ProcessorState]) -> Iterator[Finding]:
    """Owners that change all the time, and checkpoints before the first event that is left."""
    for state in states:
        location = f"{state.hub}/{state.partition} as {state.stored.group}"
        if state.owner_moves > 1:
            yield Finding(
                severity=Severity.WARNING,
                problem="Moving owner",
                location=location,
                description=f"The owner moved {state.owner_moves} times in a minute. It is '{state.stored.owner}' now.",
                remedy="Use one container of checkpoints for all processors of a consumer group, and check that they "
                "renew their ownership in time: a processor that is too busy loses its partitions.",
            )
        if state.lost_events:
            yield Finding(
                severity=Severity.ERROR,
                problem="Checkpoint older than retention",
                location=location,
                description=f"{state.lost_events:,} events after the checkpoint were deleted before they were read.",
                remedy="Start the processors, or reset them on the Processors page. Keep events longer.",
            )
