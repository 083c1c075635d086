"""Access: rules and their keys, which are hidden until somebody asks, and publishers that were shut out."""

from fastapi import Request
from nicegui import ui

from hubmere.broker.live import LiveHub
from hubmere.model.entity import AccessRule, KeyKind, RevokedPublisher, Rights
from hubmere.model.names import publisher_name, rule_name
from hubmere.portal import texts, theme
from hubmere.portal.pages.routes import page
from hubmere.portal.tables import Column, PagedTable
from hubmere.portal.theme import Place

_KEYS, _DELETE, _RESTORE = "Keys", "Delete", "Restore"
_WHOLE = "(the namespace)"
# A name that no hub can have stands for the namespace in the keys of rows.
_SEPARATOR = "\n"
_HIDDEN = "•" * 24


@page("/access", "Access")
def access(place: Place, request: Request) -> None:
    """Rules, then publishers."""
    if not _scopes(place):
        place.desk.require(Rights.MANAGE, place.namespace)
    _rules(place, request.query_params.get("hub"))
    _publishers(place)


def _scopes(place: Place) -> dict[str, LiveHub | None]:
    """What this person manages, by what it is called on the page."""
    namespace = place.namespace
    scopes: dict[str, LiveHub | None] = {}
    if place.may(Rights.MANAGE):
        scopes[_WHOLE] = None
    for hub in place.desk.hubs(namespace):
        if place.desk.may(Rights.MANAGE, namespace, hub):
            scopes[hub.name] = hub
    return scopes


def _managed(place: Place, scope: str) -> str | None:
    """The hub of a scope, None for the namespace; refused unless this person manages it."""
    hub = None if scope == _WHOLE else place.hub(scope)
    place.desk.require(Rights.MANAGE, place.namespace, hub)
    return None if hub is None else hub.name


# --- rules -----------------------------------------------------------------------------------------------------------


def _rules(place: Place, only: str | None) -> None:
    async def act(action: str, key: str) -> None:
        scope, _, name = key.partition(_SEPARATOR)
        await _ACTIONS[action](place, scope, name)

    with theme.card():
        with theme.row(between=True):
            theme.heading("Rules")
            ui.space()
            wanted = ui.input(placeholder="Find a rule or hub", value=only or "").props(
                'dense outlined clearable debounce=200 aria-label="Find a rule or hub"'
            )
            ui.button("New rule", on_click=theme.acting(lambda: _new_rule(place))).props("no-caps unelevated")
        table = PagedTable[AccessRule](
            (
                Column("name", "Name", lambda rule: rule.name, lambda rule: rule.name.lower()),
                Column("scope", "On", lambda rule: rule.hub or _WHOLE, lambda rule: rule.hub or ""),
                Column("rights", "Rights", lambda rule: ", ".join(rule.rights.names)),
                Column(
                    "updated",
                    "Changed (UTC)",
                    lambda rule: texts.instant(rule.updated_ms),
                    lambda rule: rule.updated_ms,
                ),
            ),
            key=lambda rule: f"{rule.hub or _WHOLE}{_SEPARATOR}{rule.name}",
            actions=lambda _: [_KEYS, _DELETE],
            on_act=act,
            sorted_by="scope",
        )

    def refresh() -> None:
        text = (wanted.value or "").strip().lower()
        found = [rule for rule in _all_rules(place) if text in f"{rule.name} {rule.hub or ''}".lower()]
        table.show(found)

    wanted.on_value_change(refresh)
    theme.follow(refresh)


def _all_rules(place: Place) -> list[AccessRule]:
    view, entity = place.desk.broker.catalog.view, place.namespace.entity
    return [rule for hub in _scopes(place).values() for rule in view.rules(entity if hub is None else hub.entity)]


def _find(place: Place, scope: str, name: str) -> AccessRule:
    hub = _managed(place, scope)
    view, entity = place.desk.broker.catalog.view, place.namespace.entity
    return view.rule(entity if hub is None else place.hub(hub).entity, name)


def _new_rule(place: Place) -> None:
    scopes = list(_scopes(place))
    with theme.dialog("New rule") as dialog:
        name = ui.input("Name").props("outlined dense autofocus")
        scope = ui.select(scopes, value=scopes[0], label="On", with_input=True).props("outlined dense")
        with theme.row():
            boxes = {right: ui.checkbox(right, value=right == "Listen") for right in ("Manage", "Send", "Listen")}

        async def create() -> None:
            hub = _managed(place, scope.value)
            rights = Rights.parse([right for right, box in boxes.items() if box.value])
            checked = rule_name((name.value or "").strip())
            manager, namespace = place.desk.broker.manager, place.namespace_name
            await place.desk.carry_out(
                lambda actor, done: manager.write_rule(namespace, hub, checked, rights, actor, done)
            )
            dialog.close()
            ui.notify(f"Rule {checked} is there.", type="positive")

        theme.dialog_buttons(dialog, "Create", create)


async def _delete_rule(place: Place, scope: str, name: str) -> None:
    _find(place, scope, name)
    if await theme.confirmed(f"Delete the rule {name} on {scope}? Its keys stop working at once.", _DELETE):
        hub = _managed(place, scope)
        manager, namespace = place.desk.broker.manager, place.namespace_name
        await place.desk.carry_out(lambda actor, done: manager.delete_rule(namespace, hub, name, actor, done))
        ui.notify(f"Rule {name} is gone.", type="positive")


async def _open_keys(place: Place, scope: str, name: str) -> None:
    """The keys of a rule; none leaves the node before somebody asks for it."""
    _find(place, scope, name)
    with theme.dialog(f"Keys of {name} on {scope}", has_close=True):
        for kind, title in ((KeyKind.PRIMARY, "Primary"), (KeyKind.SECONDARY, "Secondary")):
            _Key(place, scope, name, kind, title)


class _Key:
    """One key of a rule and what can be done with it."""

    def __init__(self, place: Place, scope: str, name: str, kind: KeyKind, title: str) -> None:
        self._place, self._scope, self._name, self._kind, self._title = place, scope, name, kind, title
        theme.heading(f"{title} key")
        self._text = ui.label(_HIDDEN).classes("h-mono")
        actions = (
            ("Show", self._show),
            ("Copy connection string", self._copy),
            ("Copy string without TLS", self._copy_plain),
            ("Regenerate", self._regenerate),
        )
        with theme.row():
            for label, action in actions:
                button = ui.button(label, on_click=theme.acting(action)).props("no-caps outline dense")
                button.props(f'aria-label="{label} ({title.lower()})"')

    def _current(self) -> tuple[AccessRule, str]:
        rule = _find(self._place, self._scope, self._name)
        # Whoever sees a key can do what it opens: this is told as a change would be.
        self._place.desk.note("list keys", f"{self._place.namespace_name}/{self._scope}/{self._name}")
        return rule, rule.primary_key if self._kind is KeyKind.PRIMARY else rule.secondary_key

    def _show(self) -> None:
        self._text.text = self._current()[1]

    def _copy(self) -> None:
        theme.copied(self._place.desk.addresses.connection_string(*self._current()), "Connection string")

    def _copy_plain(self) -> None:
        theme.copied(self._place.desk.addresses.emulator_connection_string(*self._current()), "Connection string")

    async def _regenerate(self) -> None:
        question = f"Make a new {self._title.lower()} key? Clients that use the old one are refused from then on."
        if not await theme.confirmed(question, "Regenerate"):
            return
        hub = _managed(self._place, self._scope)
        manager, namespace = self._place.desk.broker.manager, self._place.namespace_name
        await self._place.desk.carry_out(
            lambda actor, done: manager.regenerate_key(namespace, hub, self._name, self._kind, None, actor, done)
        )
        self._text.text = _HIDDEN
        ui.notify(f"The {self._title.lower()} key is new.", type="positive")


_ACTIONS = {_KEYS: _open_keys, _DELETE: _delete_rule}


# --- publishers ------------------------------------------------------------------------------------------------------


def _publishers(place: Place) -> None:
    hubs = [name for name, hub in _scopes(place).items() if hub is not None]
    if not hubs:
        return

    async def restore(_action: str, name: str) -> None:
        await _restore(place, chosen.value, name)

    async def revoke() -> None:
        await _revoke(place, chosen.value, (wanted.value or "").strip())
        wanted.value = ""

    with theme.card("Revoked publishers"):
        with theme.row():
            chosen = ui.select(hubs, value=hubs[0], label="Event hub", with_input=True).props("outlined dense")
            chosen.style("min-width: 220px")
            wanted = ui.input("Publisher").props("outlined dense")
            ui.button("Revoke", on_click=theme.acting(revoke)).props("no-caps outline")
        table = PagedTable[RevokedPublisher](
            (
                Column("name", "Publisher", lambda row: row.name, lambda row: row.name.lower()),
                Column("since", "Since (UTC)", lambda row: texts.instant(row.revoked_ms), lambda row: row.revoked_ms),
            ),
            key=lambda row: str(row.name),
            actions=lambda _: [_RESTORE],
            on_act=restore,
            sorted_by="name",
        )

    def refresh() -> None:
        if _scopes(place).get(chosen.value) is not None:
            table.show(place.desk.broker.catalog.view.revoked_publishers(place.hub(chosen.value).entity))

    theme.follow(refresh)


async def _revoke(place: Place, scope: str, name: str) -> None:
    hub, checked = _managed(place, scope), publisher_name(name)
    assert hub is not None
    manager, namespace = place.desk.broker.manager, place.namespace_name
    await place.desk.carry_out(lambda actor, done: manager.revoke_publisher(namespace, hub, checked, actor, done))
    ui.notify(f"Publisher {checked} is shut out.", type="positive")


async def _restore(place: Place, scope: str, name: str) -> None:
    hub = _managed(place, scope)
    assert hub is not None
    manager, namespace = place.desk.broker.manager, place.namespace_name
    await place.desk.carry_out(lambda actor, done: manager.restore_publisher(namespace, hub, name, actor, done))
    ui.notify(f"Publisher {name} may send again.", type="positive")
