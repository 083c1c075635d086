"""Audit page: the latest management actions, newest first. The administrator sees those of all namespaces."""

from fastapi import Request

from hubmere.broker import AuditLine
from hubmere.model.entity import Rights
from hubmere.model.names import fold
from hubmere.portal import formatting, theme
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.routes import page
from hubmere.portal.sign_in.portal_session import PageContext


@page("/audit", "Audit")
def audit(context: PageContext, _: Request) -> None:
    """The table of actions."""
    context.require(Rights.MANAGE)
    with theme.card("Management actions"):
        theme.note("All management actions over HTTP, Kafka and this portal. The node stores them in audit.log.")
        table = PagedTable[AuditLine](
            (
                Column("at", "Time (UTC)", lambda line: formatting.timestamp(line.at_ms)),
                Column("actor", "Actor", lambda line: line.actor, lambda line: line.actor, wraps=True),
                Column("peer", "From", lambda line: line.peer, lambda line: line.peer),
                Column("action", "Action", lambda line: line.action, lambda line: line.action),
                Column("target", "Target", lambda line: line.target, lambda line: line.target, wraps=True),
                Column("outcome", "Outcome", _outcome, _outcome),
                Column("tracking", "Tracking ID", lambda line: line.tracking_id, wraps=True),
            ),
            key=lambda line: f"{line.at_ms}/{line.action}/{line.target}/{line.tracking_id}",
        )
    theme.refresh_regularly(lambda: table.show(_lines(context)))


def _lines(context: PageContext) -> list[AuditLine]:
    """The audit records that the person may see: the Manage right on a namespace shows those of the namespace."""
    context.require(Rights.MANAGE)
    latest = context.session.broker.audit.latest()
    if context.caller.is_admin:
        return latest
    own = fold(context.namespace_name)
    return [line for line in latest if fold(line.target).partition("/")[0] == own]


def _outcome(line: AuditLine) -> str:
    return f"{line.outcome}: {line.reason}" if line.reason else line.outcome
