"""Card of a hub's page that changes its settings or deletes it."""

from dataclasses import replace

from nicegui import ui

from hubmere.model.entity import Hub, Rights, Status, TimestampType
from hubmere.model.spec import HubSpec
from hubmere.portal import theme
from hubmere.portal.sign_in.portal_session import PageContext

_DELETE = "Delete"
_TIMESTAMPS = {
    str(TimestampType.LOG_APPEND): "Time of arrival",
    str(TimestampType.CREATE): "Time of the Kafka producer",
}


class _Form:
    """The fields of the settings. Settings that the hub cannot have are not shown."""

    def __init__(self, entity: Hub) -> None:
        is_compacted = entity.retention.is_compacted
        self._retention = ui.number("Retention in hours", value=entity.retention.hours, min=1, precision=0)
        self._count = ui.number("Partitions", value=entity.partition_count, min=1, precision=0)
        self._status = ui.select(
            [str(each) for each in Status if each.is_settable], value=str(entity.status), label="Status"
        )
        self._timestamps = ui.select(_TIMESTAMPS, value=str(entity.timestamp_type), label="Kafka timestamps")
        self._tombstones = ui.number(
            "Hours that deleted keys are kept", value=entity.retention.tombstone_hours, min=1, precision=0
        )
        self._lag = ui.number(
            "Minutes before compaction", value=entity.retention.min_compaction_lag_minutes, min=0, precision=0
        )
        self._metadata = ui.input("User metadata", value=entity.user_metadata)
        self._tombstones.set_visibility(is_compacted)
        self._lag.set_visibility(is_compacted)
        fields = (self._retention, self._count, self._status, self._timestamps, self._tombstones, self._lag)
        for field in (*fields, self._metadata):
            field.props("outlined dense").style("min-width: 180px; flex: 1 1 180px; max-width: 280px")

    def spec(self, entity: Hub) -> HubSpec:
        """The settings in the form; settings without a field are unchanged."""
        return replace(
            HubSpec.of(entity),
            retention_hours=_whole(self._retention.value),
            partition_count=_whole(self._count.value),
            status=Status(self._status.value),
            timestamp_type=TimestampType(self._timestamps.value),
            tombstone_hours=_whole(self._tombstones.value),
            min_compaction_lag_minutes=_whole(self._lag.value),
            user_metadata=self._metadata.value or "",
        )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def settings_card(context: PageContext, name: str) -> None:
    """The form, and the button that deletes the hub."""
    entity = context.hub(name).entity
    with theme.card("Settings"):
        with theme.row():
            form = _Form(entity)
        theme.note(f"Cleanup policy: {entity.retention.policy}. It is chosen when a hub is created.")

        async def save() -> None:
            current = context.hub(name)
            context.require(Rights.MANAGE, current)
            spec = form.spec(current.entity)
            manager, namespace = context.session.broker.manager, context.namespace_name
            await context.session.submit(
                lambda actor, on_done: manager.update_hub(namespace, name, spec, actor, on_done)
            )
            ui.notify("Settings were saved.", type="positive")

        async def delete() -> None:
            if not await theme.confirm(f"Delete the event hub {name} and all its events?", _DELETE, typed=name):
                return
            context.require(Rights.MANAGE, context.hub(name))
            manager, namespace = context.session.broker.manager, context.namespace_name
            await context.session.submit(lambda actor, on_done: manager.delete_hub(namespace, name, actor, on_done))
            ui.navigate.to(context.url(""))

        with theme.row():
            ui.button("Save", on_click=theme.action_handler(save)).props("no-caps unelevated")
            ui.space()
            ui.button("Delete event hub", on_click=theme.action_handler(delete)).props("no-caps flat color=negative")
