"""Diagnoses the gateways of a cluster: one that is gone or silent, behind the control log, or of another release."""

from collections.abc import Iterator, Sequence

from hubmere.model.monitoring.pulse import GatewayStatus
from hubmere.portal import formatting
from hubmere.portal.doctor.finding import Finding, Severity

# Gateways report twice a second; a leader change of the topic takes some seconds.
SILENT_SECONDS = 15.0
# Three gateways write about six entries a second: a gateway this far behind does not follow.
BEHIND_ENTRIES = 200


def _gone(gateway: GatewayStatus) -> Finding:
    since = "some minutes ago" if gateway.last_seen_ms is None else f"{formatting.timestamp(gateway.last_seen_ms)} UTC"
    return Finding(
        severity=Severity.WARNING,
        problem="Gateway is gone",
        location=location_of(gateway),
        description=f"It has not reported since {since}, and was not stopped in order. The others serve its clients.",
        remedy="Start it again, or look into its log; if another one has taken its place, this ends by itself.",
    )


def location_of(gateway: GatewayStatus) -> str:
    """Where a gateway runs: its address, and its machine if that is known."""
    return f"{gateway.address} on {gateway.machine}" if gateway.machine else gateway.address


def gateway_findings(gateways: Sequence[GatewayStatus]) -> Iterator[Finding]:
    """What is wrong with the gateways of a cluster; nothing on a single node."""
    for gateway in gateways:
        if gateway.is_gone:
            yield _gone(gateway)
        elif gateway.silent_s is not None and gateway.silent_s > SILENT_SECONDS:
            yield Finding(
                severity=Severity.WARNING,
                problem="Silent gateway",
                location=gateway.address,
                description=f"It has not reported for {gateway.silent_s:,.0f} s; it uses an equal part of the units.",
                remedy="Check its network, and the leader of the topic of the pulse.",
            )
        elif gateway.lag is not None and gateway.lag > BEHIND_ENTRIES:
            yield Finding(
                severity=Severity.WARNING,
                problem="Gateway is behind",
                location=gateway.address,
                description=f"It has not read {gateway.lag:,} entries of the control log: it serves old settings.",
                remedy="Check its log and its load, and restart it if its health names an entry that it cannot read.",
            )
    versions = sorted({gateway.version for gateway in gateways if not gateway.is_gone})
    if len(versions) > 1:
        yield Finding(
            severity=Severity.WARNING,
            problem="Different releases",
            location="the cluster",
            description=f"Its gateways run the releases {', '.join(versions)}.",
            remedy="Finish the upgrade: restart the other gateways with the new release, one after the other.",
        )
