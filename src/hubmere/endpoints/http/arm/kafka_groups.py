"""Kafka groups as ARM resources: state, members, lag of each partition, reset of committed offsets, deletion.

The Azure service has no such paths; they are for the command line and other tools, and need the Manage right on the
namespace. A reset with `preview` answers what it would commit and changes nothing.
"""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, StrictBool, StrictInt
from starlette.responses import Response

from hubmere.broker import (
    GroupAdministration,
    GroupDescription,
    GroupOverview,
    GroupPosition,
    PlannedOffset,
    Reset,
    refusals,
)
from hubmere.broker import ResetKind as Kind
from hubmere.endpoints.http.arm.models import ArmModel, ShortText, parse_body
from hubmere.endpoints.http.arm.paths import NAMESPACE
from hubmere.endpoints.http.arm.request import ArmRequest, json_response, no_content_response, ok_response
from hubmere.endpoints.http.arm.serializer import PROVIDER, Json, iso_time
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.errors import InvalidArgument

_MAX_PARTITIONS = 2048
_Partition = Annotated[int, Field(ge=0, lt=_MAX_PARTITIONS)]
_INT64 = 2**63


class ResetBody(ArmModel):
    """POST of reset. `value` is an offset, a shift, or a time in ISO 8601."""

    to: Kind
    value: StrictInt | ShortText | None = None
    event_hub: ShortText | None = None
    partitions: Annotated[list[_Partition], Field(max_length=_MAX_PARTITIONS)] | None = None
    preview: StrictBool = False

    def reset(self) -> Reset:
        """The reset that is asked for."""
        if self.partitions is not None and self.event_hub is None:
            raise InvalidArgument("partitions", "without eventHub", "partitions belong to an event hub")
        partitions = None if self.partitions is None else tuple(dict.fromkeys(self.partitions))
        return Reset(kind=self.to, value=self._number(), hub=self.event_hub, partitions=partitions)

    def _number(self) -> int:
        if self.to in (Kind.EARLIEST, Kind.LATEST):
            return 0
        if self.to is Kind.TIME:
            return _time_ms(self.value)
        lowest = 0 if self.to is Kind.OFFSET else -_INT64
        if not isinstance(self.value, int) or not lowest <= self.value < _INT64:
            allowed = "a whole number" if self.to is Kind.SHIFT else "a whole number that is not negative"
            raise InvalidArgument("value", self.value, allowed)
        return self.value


def _time_ms(value: int | str | None) -> int:
    try:
        at = datetime.fromisoformat(value if isinstance(value, str) else "")
        return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument("value", value, "a time such as 2026-01-31T12:00:00Z") from None


class KafkaGroupHandlers:
    """The handlers of Kafka groups."""

    def routes(self) -> Routes:
        """Handlers by path and method."""
        return {
            f"{NAMESPACE}/kafkaGroups": {"GET": self.list_kafka_groups},
            f"{NAMESPACE}/kafkaGroups/{{group}}": {"GET": self.get_kafka_group, "DELETE": self.delete_kafka_group},
            f"{NAMESPACE}/kafkaGroups/{{group}}/reset": {"POST": self.reset_kafka_group},
        }

    async def list_kafka_groups(self, request: Request) -> Response:
        """The Kafka groups of a namespace, each with its total lag."""
        groups = _administration(request, ArmRequest(request))
        ids, next_url = request.page(groups.group_ids())
        body: Json = {"value": [_overview(groups.overview(group_id)) for group_id in ids]}
        if next_url is not None:
            body["nextLink"] = next_url
        return json_response(body)

    async def get_kafka_group(self, request: Request) -> Response:
        """One Kafka group: members, and the position and lag in each partition."""
        groups, group_id = _administration(request, ArmRequest(request)), request.names["group"]
        described = groups.describe(group_id)
        positions = [_position(position) for position in groups.positions(group_id)]
        more: Json = {"members": _members(described), "positions": positions}
        return json_response(_overview(groups.overview(group_id), more))

    async def reset_kafka_group(self, request: Request) -> Response:
        """Commit other offsets for a group without members, or only preview them."""
        arm = ArmRequest(request)
        groups, group_id = _administration(request, arm), request.names["group"]
        body = parse_body(ResetBody, await request.body())
        reset = body.reset()
        planned = groups.plan_reset(group_id, reset)
        if not body.preview:
            await await_change(lambda on_done: groups.reset(group_id, reset, arm.actor, on_done))
        return json_response({"value": [planned_json(each) for each in planned]})

    async def delete_kafka_group(self, request: Request) -> Response:
        """Delete a group without members, with its committed offsets."""
        arm = ArmRequest(request)
        groups, group_id = _administration(request, arm), request.names["group"]
        try:
            groups.describe(group_id)
        except refusals.GroupUnknown:
            return no_content_response()
        await await_change(lambda on_done: groups.delete(group_id, arm.actor, on_done))
        return ok_response()


def _administration(request: Request, arm: ArmRequest) -> GroupAdministration:
    clock = request.context.clock
    return arm.caller.coordinator(clock.monotonic(), clock.now_ms()).administration


# --- JSON ---


def _overview(group: GroupOverview, more: Json | None = None) -> Json:
    return {
        "name": group.group_id,
        "type": f"{PROVIDER}/Namespaces/KafkaGroups",
        "properties": {
            "state": group.state.value,
            "groupType": group.type.value,
            "protocolType": group.protocol_type,
            "memberCount": group.member_count,
            "eventHubs": list(group.hubs),
            "partitionCount": group.partition_count,
            "lag": group.lag,
            **(more or {}),
        },
    }


def _members(group: GroupDescription) -> list[Json]:
    return [
        {
            "memberId": member.member_id,
            "instanceId": member.instance_id or None,
            "clientId": member.client_id,
            "host": member.client_host.lstrip("/"),
        }
        for member in group.members
    ]


def _position(position: GroupPosition) -> Json:
    return {
        "eventHub": position.hub,
        "partition": position.partition,
        "committedOffset": position.committed,
        "committedAt": None if position.committed_ms is None else iso_time(position.committed_ms),
        "beginOffset": position.log_start,
        "endOffset": position.end,
        # Without a committed offset, the client decides where it begins.
        "lag": None if position.committed is None else position.lag,
        "clientId": position.client_id or None,
        "host": position.client_host or None,
    }


def planned_json(planned: PlannedOffset) -> Json:
    """The new position of one partition."""
    return {
        "eventHub": planned.hub,
        "partition": planned.partition,
        "currentOffset": planned.current,
        "newOffset": planned.target,
        "beginOffset": planned.log_start,
        "endOffset": planned.end,
        "lag": planned.lag,
    }
