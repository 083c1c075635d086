"""Gateways page: every gateway of the cluster, on the portal of any of them. Not in the navigation of a single node."""

from fastapi import Request

from hubmere.model.entity import Rights
from hubmere.model.monitoring.pulse import GatewayStatus
from hubmere.portal import formatting, theme
from hubmere.portal.doctor.findings_card import FindingsCard
from hubmere.portal.doctor.gateway_checks import gateway_findings
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.routes import page
from hubmere.portal.sign_in.portal_session import PageContext

_REFRESH_SECONDS = 1.0
_UNKNOWN = "not known"


@page("/gateways", "Gateways")
def gateways(context: PageContext, _: Request) -> None:
    """All gateways of the cluster."""
    context.require(Rights.ALL)
    _Gateways(context)


class _Gateways:
    """The table, and what needs attention."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._findings = FindingsCard("What needs attention")
        with theme.card("Gateways of this cluster"):
            theme.note(
                "Every gateway reports twice a second. The lag is the number of entries of the control log that it has "
                "not read. A gateway that has died is shown for 15 minutes, unless it runs again."
            )
            self._table = _table()
        theme.refresh_regularly(self._refresh, _REFRESH_SECONDS)

    def _refresh(self) -> None:
        found = self._context.session.broker.gateways()
        self._table.show(found)
        self._findings.show(list(gateway_findings(found)))


def _table() -> PagedTable[GatewayStatus]:
    return PagedTable(
        (
            Column("address", "Address", _address, sort=lambda each: each.address),
            Column("machine", "Machine", lambda each: each.machine or _UNKNOWN, sort=lambda each: each.machine),
            Column("state", "State", lambda each: "gone" if each.is_gone else "up"),
            Column("version", "Version", lambda each: each.version, sort=lambda each: each.version),
            Column("roles", "Roles", lambda each: ", ".join(each.roles) or "none"),
            Column("connections", "Connections", lambda each: _number_text(each.connections), is_number=True),
            Column("in", "In", lambda each: _rate(each.flow.ingress_bytes), is_number=True),
            Column("out", "Out", lambda each: _rate(each.flow.egress_bytes), is_number=True),
            Column("lag", "Lag", lambda each: _number_text(each.lag), is_number=True),
            Column("silent", "Last report", _last_report, is_number=True),
        ),
        key=lambda each: each.session,
        empty_text="This node is not a gateway of a cluster.",
    )


def _address(gateway: GatewayStatus) -> str:
    return f"{gateway.address} (this gateway)" if gateway.is_self else gateway.address


def _number_text(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _rate(bytes_per_s: float) -> str:
    return f"{formatting.size(bytes_per_s)}/s"


def _last_report(gateway: GatewayStatus) -> str:
    if gateway.is_gone and gateway.last_seen_ms is not None and gateway.silent_s is not None:
        return f"{formatting.timestamp(gateway.last_seen_ms)} ({formatting.age(gateway.silent_s)})"
    return _UNKNOWN if gateway.silent_s is None else f"{gateway.silent_s:.1f} s ago"
