"""Card of the Access page that makes shared access signatures: tokens for a scope and a time."""

from nicegui import ui

from hubmere.model.errors import InvalidArgument
from hubmere.model.security.sas import make_token
from hubmere.portal import formatting, theme
from hubmere.portal.pages.parts.rule_scopes import NAMESPACE_SCOPE, find_rule, managed_scopes
from hubmere.portal.sign_in.portal_session import PageContext

_HOUR_S = 3600
# A token that is valid for longer is better replaced by a rule of its own, which can be deleted.
_MAX_HOURS = 24 * 366


def sas_card(context: PageContext) -> None:
    """The form and the token."""
    entities = context.session.broker.entities
    choices = [
        f"{rule.name} on {scope}"
        for scope, hub in list(managed_scopes(context).items())[:100]
        for rule in entities.rules(context.namespace.entity if hub is None else hub.entity)
    ]
    if not choices:
        return
    hubs = [hub.name for hub in context.hubs()]
    with theme.card("Shared access signature"):
        theme.note("A token with the rights of a rule, for one hub or the namespace, that expires by itself.")
        with theme.row():
            rule = ui.select(choices, value=choices[0], label="Signed by").props("outlined dense")
            target = theme.choice([NAMESPACE_SCOPE, *hubs], NAMESPACE_SCOPE, "Valid for", min_width_px=160)
            hours = ui.number("Hours", value=1, min=1, max=_MAX_HOURS, precision=0)
            for field in (rule, hours):
                field.props("outlined dense").style("min-width: 160px")
            make = ui.button("Create token").props("no-caps unelevated")
        result = ui.column().style("width: 100%; gap: 6px")

        async def create() -> None:
            name, _, scope = str(rule.value).rpartition(" on ")
            found = find_rule(context, scope, name)
            count = int(hours.value or 0)
            if not 1 <= count <= _MAX_HOURS:
                raise InvalidArgument("number of hours", count, f"a whole number from 1 to {_MAX_HOURS}")
            expires_s = int(context.session.now_s) + count * _HOUR_S
            path = "" if target.value == NAMESPACE_SCOPE else str(target.value)
            uri = f"sb://{context.session.addresses.host_of(context.namespace_name)}/{path}"
            # A token is as good as the key that signs it, so making one is audited like reading a key.
            await context.session.write_audit("create token", f"{context.namespace_name}/{scope}/{name}")
            token = make_token(uri, found.name, found.primary_key, expires_at_s=expires_s)
            result.clear()
            with result:
                theme.code(token)
                theme.note(f"Valid for {uri} until {formatting.timestamp(expires_s * 1000)} UTC.")
                ui.button("Copy token", on_click=lambda: theme.copy_to_clipboard(token, "Token")).props(
                    "no-caps flat dense icon=content_copy"
                )

        make.on_click(theme.action_handler(create))
