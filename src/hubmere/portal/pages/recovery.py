"""Recovery page: aliases, pairing and failover of the namespace; for the administrator, all namespaces of the node."""

from fastapi import Request
from nicegui import ui

from hubmere.broker import NamespaceView
from hubmere.model.entity import GeoAlias, GeoRole, Rights
from hubmere.model.names import alias_name, namespace_name
from hubmere.model.spec import NamespaceSpec
from hubmere.model.tier import Tier
from hubmere.portal import theme
from hubmere.portal.paged_table import Column, PagedTable
from hubmere.portal.pages.routes import page
from hubmere.portal.sign_in.portal_session import PageContext

_FAIL_OVER, _BREAK, _DELETE = "Fail over", "Break pairing", "Delete"
_NOBODY = "(none)"


@page("/recovery", "Recovery")
def recovery(context: PageContext, _: Request) -> None:
    """Aliases, and the namespaces of the node."""
    context.require(Rights.MANAGE)
    _Aliases(context)
    if context.caller.is_admin:
        _Namespaces(context)


class _Aliases:
    """The geo-disaster recovery aliases of the namespace."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        with theme.card():
            with theme.row(between=True):
                theme.heading("Geo-disaster recovery")
                ui.space()
                ui.button("New alias", on_click=theme.action_handler(self._new)).props("no-caps unelevated")
            theme.note(
                "An alias is a name for two paired namespaces. Entities are copied to the secondary; after a failover "
                "the alias means the secondary. To pair with a namespace on another node, use "
                "the command hubmere georecovery-alias create."
            )
            self._table = PagedTable[GeoAlias](
                (
                    Column("name", "Alias", lambda row: row.name, lambda row: row.name.lower(), wraps=True),
                    Column("role", "Role of this namespace", lambda row: str(row.role)),
                    Column("partner", "Partner", lambda row: row.partner_namespace or _NOBODY),
                    Column("state", "State", lambda row: row.provisioning_state),
                ),
                key=lambda row: str(row.name),
                actions=_actions,
                on_act=self._on_action,
                sorted_by="name",
                empty_text="This namespace has no alias.",
            )
        theme.refresh_regularly(lambda: self._table.show(self._aliases()))

    def _aliases(self) -> list[GeoAlias]:
        self._context.require(Rights.MANAGE)
        return list(self._context.session.broker.entities.aliases(self._context.namespace_name))

    def _new(self) -> None:
        context = self._context
        context.require(Rights.MANAGE)
        others = [space.name for space in context.caller.namespaces() if space.name != context.namespace_name]
        with theme.dialog("New alias") as dialog:
            name = ui.input("Alias").props("outlined dense autofocus")
            partner = ui.select([_NOBODY, *others], value=_NOBODY, label="Secondary namespace").props("outlined dense")
            theme.note("The secondary must be an empty namespace. Without one, the alias is only a second name.")

            async def create() -> None:
                context.require(Rights.MANAGE)
                checked = alias_name((name.value or "").strip())
                other = "" if partner.value == _NOBODY else partner.value
                manager, namespace = context.session.broker.manager, context.namespace_name
                await context.session.submit(
                    lambda actor, on_done: manager.pair(namespace, checked, other, "", actor, on_done)
                )
                dialog.close()
                ui.notify(f"Alias {checked} was created.", type="positive")

            theme.dialog_buttons(dialog, "Create", create)

    async def _on_action(self, action: str, name: str) -> None:
        questions = {
            _FAIL_OVER: f"Move the alias {name} to this namespace? The old primary no longer gets its clients.",
            _BREAK: f"End the replication of {name}? The primary keeps the alias.",
            _DELETE: f"Delete the alias {name}? Clients that use it can no longer connect.",
        }
        if not await theme.confirm(questions[action], action, typed=name if action == _FAIL_OVER else None):
            return
        context = self._context
        context.require(Rights.MANAGE)
        manager, namespace = context.session.broker.manager, context.namespace_name
        changes = {_FAIL_OVER: manager.fail_over, _BREAK: manager.break_pairing, _DELETE: manager.delete_alias}
        await context.session.submit(lambda actor, on_done: changes[action](namespace, name, actor, on_done))
        ui.notify(f"{action}: done for {name}.", type="positive")


def _actions(alias: GeoAlias) -> list[str]:
    if alias.role is GeoRole.SECONDARY:
        return [_FAIL_OVER]
    return [_BREAK] if alias.partner_namespace else [_DELETE]


class _Namespaces:
    """All namespaces of the node, for the administrator."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        with theme.card():
            with theme.row(between=True):
                theme.heading("Namespaces of this node")
                ui.space()
                ui.button("New namespace", on_click=theme.action_handler(self._new)).props("no-caps unelevated")
            self._table = PagedTable[NamespaceView](
                (
                    Column("name", "Name", lambda row: row.name, lambda row: row.name.lower(), wraps=True),
                    Column("tier", "Tier", lambda row: str(row.entity.tier)),
                    Column("units", "Throughput units", lambda row: row.entity.capacity, is_number=True),
                    Column("hubs", "Event hubs", lambda row: len(row.hubs()), is_number=True),
                ),
                key=lambda row: row.name,
                href=lambda row: f"{context.prefix}/n/{row.name}",
                actions=lambda row: [] if row.name == context.namespace_name else [_DELETE],
                on_act=self._delete,
                sorted_by="name",
            )
        theme.refresh_regularly(lambda: self._table.show(context.caller.namespaces()))

    def _new(self) -> None:
        context = self._context
        with theme.dialog("New namespace") as dialog:
            name = ui.input("Name").props("outlined dense autofocus")
            tier = ui.select([str(each) for each in Tier], value=str(context.namespace.entity.tier), label="Tier")
            tier.props("outlined dense")

            async def create() -> None:
                checked, spec = namespace_name((name.value or "").strip()), NamespaceSpec(tier=Tier(tier.value))
                manager = context.session.broker.manager
                await context.session.submit(
                    lambda actor, on_done: manager.create_namespace(checked, spec, actor, on_done)
                )
                dialog.close()
                ui.notify(f"Namespace {checked} was created.", type="positive")

            theme.dialog_buttons(dialog, "Create", create)

    async def _delete(self, _action: str, name: str) -> None:
        question = f"Delete the namespace {name} with all its hubs and events?"
        if await theme.confirm(question, _DELETE, typed=name):
            manager = self._context.session.broker.manager
            await self._context.session.submit(lambda actor, on_done: manager.delete_namespace(name, actor, on_done))
            ui.notify(f"Namespace {name} was deleted.", type="positive")
