"""Cards at the top of the overview: the essentials of the namespace, and the first steps of a new user."""

import asyncio
from collections.abc import Mapping

from nicegui import ui

from hubmere.model.entity import Rights
from hubmere.model.names import ROOT_RULE
from hubmere.portal import formatting, theme
from hubmere.portal.events.publishing import publish
from hubmere.portal.node_facts import Certificate
from hubmere.portal.pages.routes import HUB_PATH
from hubmere.portal.sign_in.portal_session import PageContext
from hubmere.translate import HttpEvent

_DAY_MS = 86_400_000
_TEST_EVENT = b'{"hello": "from the portal"}'


class Essentials:
    """Endpoints, connection strings and facts of the namespace and its node."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        with theme.card("Essentials"):
            with ui.element("dl").classes("h-facts"):
                for name, value in self._facts().items():
                    theme.fact(name, value)
                self._disk = theme.fact("Disk", "")
                self._certificate = theme.fact("TLS certificate", "none")
            if context.may(Rights.MANAGE):
                self._connection_strings()
            else:
                theme.note("Connection strings are shown with the Manage right on the namespace.")
            # A button that came later would move what is below it, and somebody's click would miss.
            if context.session.facts.has_private_ca:
                with theme.row():
                    ui.button("Download CA certificate", on_click=theme.action_handler(self._download_ca)).props(
                        "no-caps outline dense icon=download"
                    )
        ui.timer(0.05, theme.action_handler(self._show_certificate), once=True)

    def _facts(self) -> Mapping[str, str]:
        context, addresses = self._context, self._context.session.addresses
        entity, facts = context.namespace.entity, context.session.facts
        host = addresses.host_of(context.namespace_name)
        ports = {
            "AMQP endpoint": (addresses.amqps, addresses.amqp),
            "Kafka endpoint": (addresses.kafkas, addresses.kafka),
            "HTTP endpoint": (addresses.https, addresses.http),
        }
        found = {name: _endpoint(host, *pair) for name, pair in ports.items() if any(pair)}
        found |= {"Namespace": context.namespace_name, "Tier": str(entity.tier), "Version": facts.version}
        if context.may(Rights.MANAGE) and facts.kafka_brokers:
            found["Kafka brokers"] = facts.kafka_brokers
        elif context.may(Rights.MANAGE):
            found["Data folder"] = facts.data_folder
        return {name: value for name, value in found.items() if value}

    def show(self) -> None:
        """Display what changes."""
        measures = self._context.session.broker.conditions.measures
        free, total = measures.get("disk_free_bytes"), measures.get("disk_total_bytes")
        if self._context.session.facts.kafka_brokers:
            self._disk.text = "on the Kafka brokers"
        elif free is None or total is None:
            self._disk.text = "in memory"
        else:
            self._disk.text = f"{formatting.size(total - free)} used, {formatting.size(free)} free"

    async def _show_certificate(self) -> None:
        certificate = await self._read_certificate()
        if certificate is None:
            return
        days = (certificate.expires_ms - self._context.session.clock.now_ms()) // _DAY_MS
        self._certificate.text = f"expires {formatting.timestamp(certificate.expires_ms)[:10]}, in {days} days"

    async def _download_ca(self) -> None:
        certificate = await self._read_certificate()
        if certificate is None or certificate.ca_pem is None:
            ui.notify("The certificate of the CA cannot be read; the file may be missing.", type="negative")
            return
        ui.download.content(certificate.ca_pem, "hubmere-ca.pem")

    async def _read_certificate(self) -> Certificate | None:
        return await asyncio.to_thread(self._context.session.facts.read_certificate)

    # --- connection strings ---

    def _connection_strings(self) -> None:
        addresses = self._context.session.addresses
        with theme.row():
            ui.label("Connection string")
            theme.note(f"(rule {ROOT_RULE})")
            ui.button("Copy", on_click=theme.action_handler(lambda: self._copy(is_secure=True))).props(
                'no-caps outline dense icon=content_copy aria-label="Copy (connection string)"'
            )
            if addresses.amqp is not None:
                ui.button("Copy without TLS", on_click=theme.action_handler(lambda: self._copy(is_secure=False))).props(
                    'no-caps outline dense icon=content_copy aria-label="Copy without TLS (connection string)"'
                )
            ui.link("Other rules and keys", self._context.url("/access"))

    async def _copy(self, *, is_secure: bool) -> None:
        context = self._context
        context.require(Rights.MANAGE)
        rule = context.session.broker.entities.rule(context.namespace.entity, ROOT_RULE)
        # Reading a key is a privileged action and is audited like a change.
        await context.session.write_audit("list keys", f"{context.namespace_name}/(namespace)/{ROOT_RULE}")
        addresses = context.session.addresses
        build = addresses.connection_string if is_secure else addresses.emulator_connection_string
        theme.copy_to_clipboard(build(rule, rule.primary_key), "Connection string")


def _endpoint(host: str, secure: int | None, plain: int | None) -> str:
    parts = [f"{host}:{secure} (TLS)"] if secure else []
    return ", ".join([*parts, f"{host}:{plain}"] if plain else parts)


class FirstSteps:
    """What a new user does first, with a button that sends a test event."""

    def __init__(self, context: PageContext, on_new_hub: theme.Action) -> None:
        self._context = context
        self._on_new_hub = on_new_hub
        is_new = not any(hub.counters.incoming_messages or hub.size_bytes for hub in context.hubs()[:100])
        self._body = ui.expansion("First steps", value=is_new).classes("h-card").style("padding: 0")
        with self._body:
            self._steps = ui.element("ol").classes("h-steps")
        self._hub: str | None = None
        self._build()

    def show(self) -> None:
        """Build the steps again if another hub is the first one: they lead to it."""
        if next((hub.name for hub in self._context.hubs()), None) != self._hub:
            self._build()

    def _build(self) -> None:
        self._hub = next((hub.name for hub in self._context.hubs()), None)
        self._steps.clear()
        with self._steps:
            self._build_steps(self._hub)

    def _build_steps(self, hub: str | None) -> None:
        with ui.element("li"), theme.row():
            ui.label("Create an event hub." if hub is None else f"Create an event hub: {hub} exists.")
            if hub is None and self._context.may(Rights.MANAGE):
                ui.button("Create an event hub", on_click=self._on_new_hub).props(
                    "no-caps unelevated dense padding='4px 12px'"
                )
        with ui.element("li"), theme.row():
            ui.label("Send a test event.")
            if hub is not None and self._context.may(Rights.SEND, self._context.hub(hub)):
                ui.button(f"Send a test event to {hub}", on_click=theme.action_handler(self._send)).props(
                    "no-caps unelevated dense padding='4px 12px'"
                )
            self._result = theme.status()
        with ui.element("li"):
            if hub is None:
                ui.label("See it in the Explorer.")
            else:
                ui.link("See it in the Explorer", self._context.url("/explorer", hub=hub))
        with ui.element("li"):
            if hub is None:
                ui.label("Connect your own program with a connection string.")
            else:
                ui.link("Connect your own program: code for every client", self._context.url(HUB_PATH, hub=hub))

    async def _send(self) -> None:
        hub = next((hub.name for hub in self._context.hubs()), "")
        event = HttpEvent(body=_TEST_EVENT, content_type="application/json")
        receipt = await publish(self._context, hub, event)
        self._result.text = f"Event {receipt.sequence_number} was sent to {hub}."
