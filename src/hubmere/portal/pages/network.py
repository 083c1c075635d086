"""Network page: which addresses may connect to the namespace, and application groups with their rates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fastapi import Request
from nicegui import ui

from hubmere.model.entity import ApplicationGroup, DefaultAction, Rights, ThrottlingMetric, ThrottlingPolicy
from hubmere.model.errors import AlreadyExists
from hubmere.model.names import application_group_name
from hubmere.portal import formatting, theme
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.routes import page
from hubmere.portal.sign_in.portal_session import PageContext

_EDIT, _DELETE = "Edit", "Delete"
_SAS_KEY = "NamespaceSASKeyName="
_METRICS: Mapping[ThrottlingMetric, str] = {
    ThrottlingMetric.INCOMING_BYTES: "Incoming bytes per second",
    ThrottlingMetric.INCOMING_MESSAGES: "Incoming events per second",
    ThrottlingMetric.OUTGOING_BYTES: "Outgoing bytes per second",
    ThrottlingMetric.OUTGOING_MESSAGES: "Outgoing events per second",
}


@page("/network", "Network")
def network(context: PageContext, _: Request) -> None:
    """Network rules and application groups."""
    context.require(Rights.MANAGE)
    _network_rules(context)
    _ApplicationGroups(context)


def _network_rules(context: PageContext) -> None:
    rules = context.namespace.entity.network
    with theme.card("Network rules"):
        theme.note(
            "Addresses are checked before any credential, for AMQP, Kafka and HTTP clients. The administrator token is "
            "not bound by them, so a wrong rule can always be repaired."
        )
        action = ui.select(
            {str(DefaultAction.ALLOW): "Allow all addresses", str(DefaultAction.DENY): "Deny addresses without a rule"},
            value=str(rules.default_action),
            label="Default",
        ).props("outlined dense")
        masks = ui.textarea("Allowed addresses or blocks, one per line", value="\n".join(rules.ip_masks))
        masks.props("outlined dense autogrow input-class=h-mono")
        theme.note(f"You are connected from {context.session.peer or 'an unknown address'}.")

        async def save() -> None:
            context.require(Rights.MANAGE)
            lines = tuple(line.strip() for line in (masks.value or "").splitlines() if line.strip())
            current = context.namespace.entity.network
            changed = replace(current, default_action=DefaultAction(action.value), ip_masks=lines)
            if changed.default_action is DefaultAction.DENY and not await theme.confirm(
                f"Deny every address that has no rule? Rules that remain: {len(lines)}. Connections that no rule "
                "allows are closed.",
                "Deny",
            ):
                return
            manager, name = context.session.broker.manager, context.namespace_name
            await context.session.submit(lambda actor, on_done: manager.update_network(name, changed, actor, on_done))
            ui.notify("The network rules were saved.", type="positive")

        with theme.row():
            ui.button("Save", on_click=theme.action_handler(save)).props("no-caps unelevated")


class _ApplicationGroups:
    """Clients of one credential that are limited or disabled together."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        with theme.card():
            with theme.row(between=True):
                theme.heading("Application groups")
                ui.space()
                ui.button("New application group", on_click=theme.action_handler(lambda: self._edit(None))).props(
                    "no-caps unelevated"
                )
            theme.note("Clients of one rule share rates of their own, and can be disabled together.")
            self._table = PagedTable[ApplicationGroup](
                (
                    Column("name", "Name", lambda row: row.name, lambda row: row.name.lower(), wraps=True),
                    Column("client", "Client", lambda row: row.client_id, lambda row: row.client_id, wraps=True),
                    Column("enabled", "Enabled", lambda row: "yes" if row.is_enabled else "no"),
                    Column("policies", "Limits per second", _policies_text, wraps=True),
                ),
                key=lambda row: str(row.name),
                actions=lambda _: [_EDIT, _DELETE],
                on_act=self._on_action,
                sorted_by="name",
                empty_text="There is no application group: all clients share the units of the namespace.",
            )
        theme.refresh_regularly(lambda: self._table.show(self._groups()))

    def _groups(self) -> list[ApplicationGroup]:
        self._context.require(Rights.MANAGE)
        return list(self._context.session.broker.entities.application_groups(self._context.namespace_name))

    async def _on_action(self, action: str, name: str) -> None:
        group = next((group for group in self._groups() if group.name == name), None)
        if group is None:
            ui.notify("This application group is already deleted.", type="info")
        elif action == _EDIT:
            self._edit(group)
        elif await theme.confirm(f"Delete the application group {name}? Its clients are no longer limited.", _DELETE):
            self._context.require(Rights.MANAGE)
            manager = self._context.session.broker.manager
            await self._context.session.submit(
                lambda actor, on_done: manager.delete_application_group(group, actor, on_done)
            )
            ui.notify(f"Application group {name} was deleted.", type="positive")

    def _edit(self, group: ApplicationGroup | None) -> None:
        context = self._context
        context.require(Rights.MANAGE)
        rules = [str(rule.name) for rule in context.session.broker.entities.rules(context.namespace.entity)]
        title = "New application group" if group is None else f"Application group {group.name}"
        with theme.dialog(title) as dialog:
            form = _GroupForm(group, rules)

            async def save() -> None:
                context.require(Rights.MANAGE)
                written = form.group(context)
                if group is None:
                    _require_new_group(context, written.name)
                manager = context.session.broker.manager
                await context.session.submit(
                    lambda actor, on_done: manager.write_application_group(written, actor, on_done)
                )
                dialog.close()
                ui.notify(f"Application group {written.name} was saved.", type="positive")

            theme.dialog_buttons(dialog, "Save", save)


def _require_new_group(context: PageContext, name: str) -> None:
    """Refuse a name in use: writing the group would replace its limits."""
    if context.session.broker.entities.find_application_group(context.namespace_name, name) is not None:
        raise AlreadyExists(f"{context.namespace_name}/{name}")


class _GroupForm:
    """The fields of an application group."""

    def __init__(self, group: ApplicationGroup | None, rules: Sequence[str]) -> None:
        self._name = ui.input("Name", value="" if group is None else group.name).props("outlined dense autofocus")
        self._name.set_enabled(group is None)
        clients = [f"{_SAS_KEY}{rule}" for rule in rules]
        known = clients[0] if group is None else group.client_id
        self._client = ui.select(sorted({*clients, known}), value=known, label="Clients").props("outlined dense")
        self._is_enabled = ui.switch("Enabled", value=group is None or group.is_enabled)
        rates = {policy.metric: policy.rate_per_s for policy in (() if group is None else group.policies)}
        self._rates = {
            metric: ui.number(text, placeholder="no limit", value=rates.get(metric), min=1, precision=0)
            for metric, text in _METRICS.items()
        }
        for field in self._rates.values():
            field.props("outlined dense")

    def group(self, context: PageContext) -> ApplicationGroup:
        """The application group in the form."""
        return ApplicationGroup(
            namespace=context.namespace.entity.name,
            name=application_group_name((self._name.value or "").strip()),
            client_id=self._client.value,
            is_enabled=bool(self._is_enabled.value),
            policies=tuple(
                ThrottlingPolicy(name=str(metric), metric=metric, rate_per_s=int(field.value))
                for metric, field in self._rates.items()
                if field.value
            ),
        )


def _policies_text(group: ApplicationGroup) -> str:
    return ", ".join(f"{policy.metric}: {formatting.number(policy.rate_per_s)}" for policy in group.policies)
