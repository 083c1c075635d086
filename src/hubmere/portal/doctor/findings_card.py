"""Runs the doctor for a page and displays its findings."""

from collections.abc import Sequence

from nicegui import ui

from hubmere.broker import ConnectionView, HubView, ProcessorState
from hubmere.portal import theme
from hubmere.portal.doctor.diagnosis import Observer, Snapshot, findings, links_by_reader
from hubmere.portal.doctor.finding import Finding
from hubmere.portal.sign_in.portal_session import PageContext

# Maximum number of findings on the page.
_MAX_FINDINGS = 50
_PROCESSORS_SECONDS = 5.0


class Doctor:
    """What was observed in a namespace since a page was opened."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self.observer = Observer()
        self.hubs: list[HubView] = []
        self._processors: list[ProcessorState] = []
        self._next_processors_at = 0.0

    def examine(self, connections: Sequence[ConnectionView] = ()) -> list[Finding]:
        """Observe the namespace once more; the findings name those of the given connections that are concerned."""
        context, session = self._context, self._context.session
        now, now_ms = session.clock.monotonic(), session.clock.now_ms()
        self.hubs = _readable_hubs(context)
        session.sampler.sample(context.namespace)
        self.observer.observe(self.hubs, now, now_ms)
        if now >= self._next_processors_at:
            # Every blob is read for this, so not at every refresh.
            self._next_processors_at = now + _PROCESSORS_SECONDS
            self._processors = session.broker.processors.states(context.namespace_name, now_ms)
        return findings(
            Snapshot(
                namespace=context.namespace,
                hubs=self.hubs,
                observer=self.observer,
                rates=session.sampler.rates,
                now=now,
                now_ms=now_ms,
                conditions=session.broker.conditions.all(),
                processors=self._processors,
                gateways=session.broker.gateways(),
                connections=connections,
                reader_links=links_by_reader(connections),
            )
        )


def _readable_hubs(context: PageContext) -> list[HubView]:
    hubs = context.hubs()
    # The Listen right on the namespace covers all hubs: skip the check of each of up to a thousand hubs.
    if context.may_view():
        return hubs
    return [hub for hub in hubs if context.may_view(hub)]


class FindingsCard:
    """The card with the findings."""

    def __init__(self, title: str) -> None:
        self._displayed: list[Finding] | None = None
        with theme.card(title):
            self._body = ui.column().style("gap: 10px; width: 100%").props('role="status"')

    def show(self, found: list[Finding]) -> None:
        """Display the findings if they have changed."""
        if found == self._displayed:
            return
        self._displayed = found
        self._body.clear()
        with self._body:
            if not found:
                ui.label("No problems found.").classes("h-badge good")
            for finding in found[:_MAX_FINDINGS]:
                with ui.column().classes(f"h-finding {finding.severity}"):
                    ui.label(f"{finding.problem}: {finding.location}").style("font-weight: 650")
                    ui.label(finding.description)
                    theme.note(finding.remedy)
