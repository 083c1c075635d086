"""Audit: the latest management actions, newest first: of the node for the administrator, of a namespace for others."""

from fastapi import Request

from hubmere.broker.management.auditing import AuditLine
from hubmere.model.entity import Rights
from hubmere.model.names import fold
from hubmere.portal import texts, theme
from hubmere.portal.pages.routes import page
from hubmere.portal.tables import Column, PagedTable
from hubmere.portal.theme import Place


@page("/audit", "Audit")
def audit(place: Place, _: Request) -> None:
    """One table."""
    place.desk.require(Rights.MANAGE, place.namespace)
    with theme.card("Management actions"):
        theme.note("Everything that was asked for over HTTP, Kafka or this portal; the node keeps it in audit.log.")
        table = PagedTable[AuditLine](
            (
                Column("at", "Time (UTC)", lambda line: texts.instant(line.at_ms)),
                Column("actor", "Who", lambda line: line.actor, lambda line: line.actor),
                Column("peer", "From", lambda line: line.peer, lambda line: line.peer),
                Column("action", "Action", lambda line: line.action, lambda line: line.action),
                Column("target", "Target", lambda line: line.target, lambda line: line.target),
                Column("outcome", "Outcome", _outcome, _outcome),
                Column("tracking", "Tracking id", lambda line: line.tracking_id),
            ),
            key=lambda line: f"{line.at_ms}/{line.action}/{line.target}/{line.tracking_id}",
        )
    theme.follow(lambda: table.show(_lines(place)))


def _lines(place: Place) -> list[AuditLine]:
    """The lines that this person may see: whoever manages a namespace sees what was done in it."""
    place.desk.require(Rights.MANAGE, place.namespace)
    latest = place.desk.broker.audit.latest()
    if place.desk.principal.is_admin:
        return latest
    own = fold(place.namespace_name)
    return [line for line in latest if fold(line.target).partition("/")[0] == own]


def _outcome(line: AuditLine) -> str:
    return f"{line.outcome}: {line.reason}" if line.reason else line.outcome
