"""Access page: authorization rules, their keys (hidden until requested), tokens and publishers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from hubmere.broker import HubView
from hubmere.model.entity import AccessRule, KeyKind, Rights
from hubmere.model.names import fold, publisher_name, rule_name
from hubmere.portal import formatting, theme
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.parts.rule_scopes import (
    NAMESPACE_SCOPE,
    find_rule,
    managed_hub,
    managed_scopes,
    require_new_rule,
)
from hubmere.portal.pages.parts.sas import sas_card
from hubmere.portal.pages.routes import page
from hubmere.portal.sign_in.portal_session import PageContext

_KEYS, _EDIT, _DELETE, _RESTORE, _REVOKE = "Keys", "Edit", "Delete", "Restore", "Revoke"
_RIGHTS = ("Manage", "Send", "Listen")
_SEPARATOR = "\n"
_HIDDEN = "•" * 24


@page("/access", "Access")
def access(context: PageContext, request: Request) -> None:
    """Rules and revoked publishers."""
    if not managed_scopes(context):
        context.require(Rights.MANAGE)
    _rules(context, request.query_params.get("hub"))
    below = ui.column().style("width: 100%; gap: 16px")

    def build_rest() -> None:
        with below:
            sas_card(context)
            _publishers(context)

    # Their lists of hubs take a while with a thousand hubs; the rules are usable before.
    ui.timer(0.1, theme.action_handler(build_rest), once=True)


# --- rules -----------------------------------------------------------------------------------------------------------


def _rules(context: PageContext, only: str | None) -> None:
    async def on_action(action: str, key: str) -> None:
        scope, _, name = key.partition(_SEPARATOR)
        await _ACTIONS[action](context, scope, name)

    with theme.card():
        with theme.row(between=True):
            theme.heading("Rules")
            ui.space()
            search = ui.input(placeholder="Search rules and hubs", value=only or "").props(
                'dense outlined clearable debounce=200 aria-label="Search rules and hubs"'
            )
            ui.button("New rule", on_click=theme.action_handler(lambda: _new_rule(context))).props("no-caps unelevated")
        table = PagedTable[AccessRule](
            (
                Column("name", "Name", lambda rule: rule.name, lambda rule: rule.name.lower(), wraps=True),
                Column(
                    "scope", "Scope", lambda rule: rule.hub or NAMESPACE_SCOPE, lambda rule: rule.hub or "", wraps=True
                ),
                Column("rights", "Rights", lambda rule: ", ".join(rule.rights.names)),
                Column(
                    "updated",
                    "Modified (UTC)",
                    lambda rule: formatting.timestamp(rule.updated_ms),
                    lambda rule: rule.updated_ms,
                ),
            ),
            key=lambda rule: f"{rule.hub or NAMESPACE_SCOPE}{_SEPARATOR}{rule.name}",
            actions=lambda _: [_KEYS, _EDIT, _DELETE],
            on_act=on_action,
            sorted_by="scope",
        )

    def refresh() -> None:
        text = (search.value or "").strip().lower()
        found = [rule for rule in _all_rules(context) if text in f"{rule.name} {rule.hub or ''}".lower()]
        table.show(found)

    search.on_value_change(refresh)
    theme.refresh_regularly(refresh)


def _all_rules(context: PageContext) -> list[AccessRule]:
    entities, entity = context.session.broker.entities, context.namespace.entity
    return [
        rule
        for hub in managed_scopes(context).values()
        for rule in entities.rules(entity if hub is None else hub.entity)
    ]


def _new_rule(context: PageContext) -> None:
    scopes = list(managed_scopes(context))
    with theme.dialog("New rule") as dialog:
        name = ui.input("Name").props("outlined dense autofocus")
        scope = theme.choice(scopes, scopes[0], "Scope")
        boxes = _right_boxes(Rights.LISTEN)

        async def create() -> None:
            hub = managed_hub(context, scope.value)
            rights = _rights_of(boxes)
            checked = rule_name((name.value or "").strip())
            require_new_rule(context, scope.value, checked)
            manager, namespace = context.session.broker.manager, context.namespace_name
            await context.session.submit(
                lambda actor, on_done: manager.write_rule(namespace, hub, checked, rights, actor, on_done)
            )
            dialog.close()
            ui.notify(f"Rule {checked} was created.", type="positive")

        theme.dialog_buttons(dialog, "Create", create)


def _right_boxes(rights: Rights) -> dict[str, ui.checkbox]:
    with theme.row():
        return {right: ui.checkbox(right, value=right in rights.names) for right in _RIGHTS}


def _rights_of(boxes: Mapping[str, ui.checkbox]) -> Rights:
    return Rights.parse([right for right, box in boxes.items() if box.value])


async def _edit_rule(context: PageContext, scope: str, name: str) -> None:
    """Show the dialog that changes the rights of a rule; its keys stay."""
    rule = find_rule(context, scope, name)
    with theme.dialog(f"Rights of {name} on {scope}") as dialog:
        boxes = _right_boxes(rule.rights)

        async def save() -> None:
            rights, current = _rights_of(boxes), find_rule(context, scope, name)
            question = f"Take the Manage right from the rule {name}? It may be the only way in."
            if _manages_namespace(current) and not rights & Rights.MANAGE:
                if not await theme.confirm(question, "Save", typed=name):
                    return
                current = find_rule(context, scope, name)
            manager, namespace = context.session.broker.manager, context.namespace_name
            await context.session.submit(
                lambda actor, on_done: manager.write_rule(namespace, current.hub, current.name, rights, actor, on_done)
            )
            dialog.close()
            ui.notify(f"Rights of {name} were saved.", type="positive")

        theme.dialog_buttons(dialog, "Save", save)


def _manages_namespace(rule: AccessRule) -> bool:
    """Whether a rule may be the only way in, as the root rule is."""
    return rule.hub is None and bool(rule.rights & Rights.MANAGE)


async def _delete_rule(context: PageContext, scope: str, name: str) -> None:
    rule = find_rule(context, scope, name)
    typed = name if _manages_namespace(rule) else None
    question = f"Delete the rule {name} on {scope}? Its keys stop working immediately."
    if await theme.confirm(question, _DELETE, typed=typed):
        hub = managed_hub(context, scope)
        manager, namespace = context.session.broker.manager, context.namespace_name
        await context.session.submit(lambda actor, on_done: manager.delete_rule(namespace, hub, name, actor, on_done))
        ui.notify(f"Rule {name} was deleted.", type="positive")


async def _open_keys(context: PageContext, scope: str, name: str) -> None:
    """Show the keys of a rule. A key is sent to the browser only on request."""
    find_rule(context, scope, name)
    with theme.dialog(f"Keys of {name} on {scope}", has_close=True):
        for kind, title in ((KeyKind.PRIMARY, "Primary"), (KeyKind.SECONDARY, "Secondary")):
            _Key(context, scope, name, kind, title)


class _Key:
    """One key of a rule, with its actions."""

    def __init__(self, context: PageContext, scope: str, name: str, kind: KeyKind, title: str) -> None:
        self._context, self._scope, self._name, self._kind, self._title = context, scope, name, kind, title
        theme.heading(f"{title} key")
        self._text = ui.label(_HIDDEN).classes("h-mono")
        actions = (
            ("Show", self._show),
            ("Copy connection string", self._copy),
            ("Copy connection string without TLS", self._copy_plain),
            ("Regenerate", self._regenerate),
        )
        with theme.row():
            for label, action in actions:
                button = ui.button(label, on_click=theme.action_handler(action)).props("no-caps outline dense")
                button.props(f'aria-label="{label} ({title.lower()})"')

    async def _current(self) -> tuple[AccessRule, str]:
        rule = find_rule(self._context, self._scope, self._name)
        # Reading a key is a privileged action and is audited like a change.
        await self._context.session.write_audit(
            "list keys", f"{self._context.namespace_name}/{self._scope}/{self._name}"
        )
        return rule, rule.primary_key if self._kind is KeyKind.PRIMARY else rule.secondary_key

    async def _show(self) -> None:
        _, self._text.text = await self._current()

    async def _copy(self) -> None:
        theme.copy_to_clipboard(
            self._context.session.addresses.connection_string(*(await self._current())), "Connection string"
        )

    async def _copy_plain(self) -> None:
        theme.copy_to_clipboard(
            self._context.session.addresses.emulator_connection_string(*(await self._current())), "Connection string"
        )

    async def _regenerate(self) -> None:
        question = f"Regenerate the {self._title.lower()} key? Clients that use the current key will be refused."
        if not await theme.confirm(question, "Regenerate"):
            return
        hub = managed_hub(self._context, self._scope)
        manager, namespace = self._context.session.broker.manager, self._context.namespace_name
        await self._context.session.submit(
            lambda actor, on_done: manager.regenerate_key(namespace, hub, self._name, self._kind, None, actor, on_done)
        )
        self._text.text = _HIDDEN
        ui.notify(f"The {self._title.lower()} key was regenerated.", type="positive")


_ACTIONS = {_KEYS: _open_keys, _EDIT: _edit_rule, _DELETE: _delete_rule}


# --- publishers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Publisher:
    """A publisher that has an open link, or that is revoked."""

    name: str
    link_count: int
    revoked_ms: int | None


def _publishers(context: PageContext) -> None:
    hubs = [name for name, hub in managed_scopes(context).items() if hub is not None]
    if not hubs:
        return

    async def act(action: str, name: str) -> None:
        await (_restore if action == _RESTORE else _revoke)(context, chosen.value, name)

    async def revoke() -> None:
        await _revoke(context, chosen.value, (search.value or "").strip())
        search.value = ""

    with theme.card("Publishers"):
        theme.note("Publishers with a name of their own that are connected now, and those that are revoked.")
        with theme.row():
            chosen = theme.choice(hubs, hubs[0], "Event hub", min_width_px=220)
            search = ui.input("Publisher").props("outlined dense")
            ui.button("Revoke", on_click=theme.action_handler(revoke)).props("no-caps outline")
        table = PagedTable[_Publisher](
            (
                Column("name", "Publisher", lambda row: row.name, lambda row: row.name.lower(), wraps=True),
                Column("links", "Open links", lambda row: row.link_count, lambda row: row.link_count, True),
                Column(
                    "since",
                    "Revoked at (UTC)",
                    lambda row: "" if row.revoked_ms is None else formatting.timestamp(row.revoked_ms),
                    lambda row: row.revoked_ms or 0,
                ),
            ),
            key=lambda row: row.name,
            actions=lambda row: [_REVOKE if row.revoked_ms is None else _RESTORE],
            on_act=act,
            sorted_by="name",
            empty_text="No publisher is connected under its own name, and none is revoked.",
        )

    def refresh() -> None:
        if managed_scopes(context).get(chosen.value) is not None:
            table.show(_known_publishers(context, context.hub(chosen.value)))

    theme.refresh_regularly(refresh)


def _known_publishers(context: PageContext, hub: HubView) -> list[_Publisher]:
    open_links = Counter(name for name in hub.publisher_names() if name)
    revoked = {str(row.name): row.revoked_ms for row in context.session.broker.entities.revoked_publishers(hub.entity)}
    names = {**{fold(name): name for name in open_links}, **{fold(name): name for name in revoked}}
    return [
        _Publisher(name=name, link_count=open_links.get(folded, 0), revoked_ms=revoked.get(name))
        for folded, name in names.items()
    ]


async def _revoke(context: PageContext, scope: str, name: str) -> None:
    hub, checked = managed_hub(context, scope), publisher_name(name)
    assert hub is not None
    manager, namespace = context.session.broker.manager, context.namespace_name
    await context.session.submit(
        lambda actor, on_done: manager.revoke_publisher(namespace, hub, checked, actor, on_done)
    )
    ui.notify(f"Publisher {checked} was revoked.", type="positive")


async def _restore(context: PageContext, scope: str, name: str) -> None:
    hub = managed_hub(context, scope)
    assert hub is not None
    manager, namespace = context.session.broker.manager, context.namespace_name
    await context.session.submit(lambda actor, on_done: manager.restore_publisher(namespace, hub, name, actor, on_done))
    ui.notify(f"Publisher {name} was restored.", type="positive")
