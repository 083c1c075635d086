"""Scale page: throughput units, their limits and usage, and auto-inflate."""

from dataclasses import replace

from fastapi import Request
from nicegui import ui

from hubmere.model.entity import Rights
from hubmere.model.spec import NamespaceSpec
from hubmere.portal import formatting, theme
from hubmere.portal.history import charts
from hubmere.portal.history.boards import Board, ChartSpec
from hubmere.portal.pages.routes import page
from hubmere.portal.sign_in.portal_session import PageContext

# The broker represents "no limit" by a rate that no machine reaches.
_NO_LIMIT = 1e15
_CHARTS = (
    ("Data in per second", "incoming_bytes", "ingress_bytes", True),
    ("Events in per second", "incoming_messages", "ingress_events", False),
    ("Data out per second", "outgoing_bytes", "egress_bytes", True),
    ("Events out per second", "outgoing_messages", "egress_events", False),
)


@page("/scale", "Scale")
def scale(context: PageContext, _: Request) -> None:
    """Current units, usage, and the form that changes them."""
    context.require(Rights.ALL)
    summary = _summary()
    board = Board(context, [_spec(context, *chart) for chart in _CHARTS], None)

    def refresh() -> None:
        namespace = context.namespace
        board.show()
        entity = namespace.entity
        summary["tier"].text = str(entity.tier)
        summary["units"].text = formatting.number(entity.capacity)
        summary["inflate"].text = f"up to {entity.maximum_throughput_units}" if entity.auto_inflate else "off"
        summary["throttling"].text = "on" if namespace.is_throttled else "off"

    theme.refresh_regularly(refresh)
    if context.may(Rights.MANAGE):
        _change(context)
    else:
        theme.note("To change the units, sign in with a key that has the Manage right on the namespace.")


def _spec(context: PageContext, title: str, counter: str, limit: str, is_bytes: bool) -> ChartSpec:
    def value() -> float | None:
        rates = context.namespace.rates
        allowed = None if rates is None else float(getattr(rates, limit))
        return None if allowed is None or allowed > _NO_LIMIT else allowed

    return ChartSpec(title=title, lines={"used": (counter, charts.ACCENT)}, is_bytes=is_bytes, limit=value)


def _summary() -> dict[str, ui.label]:
    with ui.element("div").classes("h-tiles"):
        return {
            "tier": theme.tile("Tier"),
            "units": theme.tile("Throughput units"),
            "inflate": theme.tile("Auto-inflate"),
            "throttling": theme.tile("Throttling"),
        }


def _change(context: PageContext) -> None:
    entity, limits = context.namespace.entity, context.namespace.limits
    with theme.card("Change"):
        with theme.row():
            units = ui.number("Throughput units", value=entity.capacity, min=1, precision=0).props("outlined dense")
            inflate = ui.switch("Auto-inflate", value=entity.auto_inflate)
            maximum = ui.number("Maximum units", value=entity.maximum_throughput_units or None, min=1, precision=0)
            maximum.props("outlined dense").bind_visibility_from(inflate, "value")
            minimum = ui.number("Minimum units when idle (0: never deflate)", min=0, precision=0)
            minimum.value = entity.minimum_throughput_units
            minimum.props("outlined dense").style("min-width: 260px").bind_visibility_from(inflate, "value")
        if not context.namespace.is_throttled:
            theme.note("Throttling is off on this node: the units are stored but not enforced.")
        if not limits.has_auto_inflate:
            inflate.disable()
            theme.note(f"Auto-inflate is not included in the tier {entity.tier}.")

        async def save() -> None:
            namespace = context.namespace
            context.require(Rights.MANAGE)
            spec = replace(
                NamespaceSpec.of(namespace.entity),
                capacity=int(units.value or 0),
                auto_inflate=bool(inflate.value),
                maximum_throughput_units=int(maximum.value or 0) if inflate.value else 0,
                minimum_throughput_units=int(minimum.value or 0) if inflate.value else 0,
            )
            manager, name = context.session.broker.manager, namespace.name
            await context.session.submit(lambda actor, on_done: manager.update_namespace(name, spec, actor, on_done))
            ui.notify("Saved. The new limits apply immediately.", type="positive")

        with theme.row():
            ui.button("Save", on_click=theme.action_handler(save)).props("no-caps unelevated")
