"""Atom management of hubs, consumer groups, partitions and revoked publishers, on the namespace's own endpoint.

The interface of the old SDKs (reference: service 4.1). PUT creates and, with If-Match, replaces; omitted properties get
their defaults. Reading a hub needs Manage, or Listen on that hub; only Manage sees its keys, and every change needs
Manage. An update replaces the rules of a hub if it names any, and else keeps them.
"""

from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from starlette.responses import Response

from hubmere.broker import Caller, HubView, PartitionInfo
from hubmere.endpoints.http.atom import xml
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.errors import XML_TYPE, MalformedRequest
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.entity import AccessRule, ConsumerGroup, Hub, RevokedPublisher, Rights, Status
from hubmere.model.errors import AlreadyExists, InvalidArgument, LimitReached, NotFound
from hubmere.model.names import RuleName, group_name, hub_name, publisher_name, rule_name
from hubmere.model.spec import HubSpec
from hubmere.model.tier import HOURS_PER_DAY

# All elements of a hub's description in the order of the serializer; clients may send back what they have read.
_HUB_ORDER = (
    "MessageRetentionInDays", "SizeInBytes", "AuthorizationRules", "Status", "CreatedAt", "UpdatedAt", "UserMetadata",
    "PartitionCount", "PartitionIds", "EntityAvailabilityStatus",
)  # fmt: skip
_GROUP_ORDER = ("CreatedAt", "UpdatedAt", "UserMetadata")
# From this version on, a partition includes its last enqueued event.
_LAST_ENQUEUED_SINCE = "2015-01"
_STATUSES = frozenset(status.value for status in Status)
_PROBE_TITLE = "Publicly Listed Services"

_Rule = tuple[RuleName, Rights, str | None, str | None]


class AtomHandlers:
    """The handlers of Atom management."""

    def routes(self) -> Routes:
        """Handlers by path and method."""
        return {
            "": {"GET": self.probe},
            "$Resources/EventHubs": {"GET": self.list_hubs},
            "{hub*}/consumergroups": {"GET": self.list_groups},
            "{hub*}/consumergroups/{group}": {
                "PUT": self.put_group,
                "GET": self.get_group,
                "DELETE": self.delete_group,
            },
            "{hub*}/consumergroups/{group}/partitions": {"GET": self.list_partitions},
            "{hub*}/consumergroups/{group}/partitions/{partition}": {"GET": self.get_partition},
            "{hub*}/revokedpublishers": {"GET": self.list_revoked},
            "{hub*}/revokedpublishers/{publisher}": {
                "PUT": self.revoke,
                "GET": self.get_revoked,
                "DELETE": self.restore,
            },
            "{hub*}": {"PUT": self.put_hub, "GET": self.get_hub, "DELETE": self.delete_hub},
        }

    # --- hubs ---

    async def probe(self, request: Request) -> Response:
        """The feed at `/`, which needs no credential."""
        now_ms = request.context.clock.now_ms()
        body = xml.feed(_PROBE_TITLE, f"{request.base_url}/", request.base_url, (), now_ms, None)
        return Response(body, 200, media_type=xml.FEED_TYPE)

    async def list_hubs(self, request: Request) -> Response:
        """Every hub of the namespace."""
        caller = request.sign_in()
        caller.require(Rights.MANAGE, caller.resource(), request.context.now_s)
        hubs, next_url = request.page(request.context.broker.entities.hubs(caller.namespace.name))
        entries = [_hub_entry(request, caller, hub, is_manager=True) for hub in hubs]
        return _feed(request, "EventHubs", entries, next_url)

    async def put_hub(self, request: Request) -> Response:
        """Create a hub, or replace its description with If-Match."""
        caller, name = request.sign_in_to_hub()
        caller.require(Rights.MANAGE, caller.resource(name), request.context.now_s)
        namespace = caller.namespace
        elements = xml.description_of(await request.body(), "EventHubDescription", _HUB_ORDER)
        spec, rules = _hub_spec(elements), _rules(elements.get("AuthorizationRules"))
        limit = namespace.limits.rules_per_entity
        if limit is not None and len(rules) > limit:
            raise LimitReached("authorization rules", limit, "rules_per_entity")
        if request.is_update:
            return await self._replace_hub(request, caller, name, spec, rules)
        existing = request.context.broker.entities.find_hub(namespace.name, name)
        if existing is not None:
            raise AlreadyExists(namespace.resource(existing.name))
        manager, actor = request.context.broker.manager, request.actor(caller)
        checked = hub_name(name)
        hub = await await_change(lambda on_done: manager.create_hub(namespace.name, checked, spec, actor, on_done))
        await self._write_rules(request, caller, hub, rules)
        return _entry(_hub_entry(request, caller, hub, is_manager=True), 201)

    async def _replace_hub(
        self,
        request: Request,
        caller: Caller,
        name: str,
        spec: HubSpec,
        rules: list[_Rule],
    ) -> Response:
        manager, actor = request.context.broker.manager, request.actor(caller)
        hub = await await_change(lambda on_done: manager.update_hub(caller.namespace.name, name, spec, actor, on_done))
        if rules:
            named = {rule[0].lower() for rule in rules}
            for rule in request.context.broker.entities.rules(hub):
                if rule.name.lower() not in named:
                    await self._delete_rule(request, caller, hub, rule)
            await self._write_rules(request, caller, hub, rules)
        return _entry(_hub_entry(request, caller, hub, is_manager=True), 200)

    async def _write_rules(self, request: Request, caller: Caller, hub: Hub, rules: list[_Rule]) -> None:
        manager, actor = request.context.broker.manager, request.actor(caller)
        for name, rights, primary, secondary in rules:
            write = partial(manager.write_rule, primary_key=primary, secondary_key=secondary)
            await await_change(partial(write, hub.namespace, hub.name, name, rights, actor))

    async def _delete_rule(self, request: Request, caller: Caller, hub: Hub, rule: AccessRule) -> None:
        manager, actor = request.context.broker.manager, request.actor(caller)
        await await_change(lambda on_done: manager.delete_rule(hub.namespace, hub.name, rule.name, actor, on_done))

    async def get_hub(self, request: Request) -> Response:
        """A hub's description; keys for managers only."""
        hub, caller = _readable_hub(request)
        is_manager = caller.may(Rights.MANAGE, hub.name)
        return _entry(_hub_entry(request, caller, hub.entity, is_manager=is_manager), 200)

    async def delete_hub(self, request: Request) -> Response:
        """Delete a hub with everything in it."""
        hub, caller = _manageable_hub(request)
        manager, actor = request.context.broker.manager, request.actor(caller)
        await await_change(lambda on_done: manager.delete_hub(hub.entity.namespace, hub.name, actor, on_done))
        return _empty_response()

    # --- consumer groups ---

    async def list_groups(self, request: Request) -> Response:
        """The consumer groups of a hub."""
        hub, _ = _readable_hub(request)
        groups, next_url = request.page(request.context.broker.entities.groups(hub.entity))
        return _feed(request, "ConsumerGroups", [_group_entry(request, hub, group) for group in groups], next_url)

    async def put_group(self, request: Request) -> Response:
        """Create a consumer group, or replace its metadata with If-Match."""
        hub, caller = _manageable_hub(request)
        elements = xml.description_of(await request.body(), "ConsumerGroupDescription", _GROUP_ORDER)
        metadata = elements["UserMetadata"].text if "UserMetadata" in elements else ""
        manager, actor = request.context.broker.manager, request.actor(caller)
        name = group_name(request.names["group"])
        path = (hub.entity.namespace, hub.name)
        if request.is_update:
            group = await await_change(lambda on_done: manager.update_group(*path, name, metadata, actor, on_done))
            return _entry(_group_entry(request, hub, group), 200)
        group = await await_change(lambda on_done: manager.create_group(*path, name, metadata, actor, on_done))
        return _entry(_group_entry(request, hub, group), 201)

    async def get_group(self, request: Request) -> Response:
        """One consumer group."""
        hub, _ = _readable_hub(request)
        group = request.context.broker.entities.group(hub.entity, request.names["group"])
        return _entry(_group_entry(request, hub, group), 200)

    async def delete_group(self, request: Request) -> Response:
        """Delete a consumer group and disconnect its readers."""
        hub, caller = _manageable_hub(request)
        manager, actor = request.context.broker.manager, request.actor(caller)
        await await_change(
            lambda on_done: manager.delete_group(hub.entity.namespace, hub.name, request.names["group"], actor, on_done)
        )
        return _empty_response()

    # --- partitions ---

    async def list_partitions(self, request: Request) -> Response:
        """The partitions of a hub."""
        hub, group = self._group(request)
        ids, next_url = request.page(hub.entity.partition_ids)
        return _feed(request, "Partitions", [_partition_entry(request, hub, group, id_) for id_ in ids], next_url)

    async def get_partition(self, request: Request) -> Response:
        """One partition, with its first and last sequence number."""
        hub, group = self._group(request)
        if request.names["partition"] not in hub.entity.partition_ids:
            raise NotFound(hub.namespace.resource(hub.name, "partitions", request.names["partition"]))
        return _entry(_partition_entry(request, hub, group, request.names["partition"]), 200)

    def _group(self, request: Request) -> tuple[HubView, ConsumerGroup]:
        hub, _ = _readable_hub(request)
        return hub, request.context.broker.entities.group(hub.entity, request.names["group"])

    # --- publishers ---

    async def list_revoked(self, request: Request) -> Response:
        """The revoked publishers of a hub."""
        hub, _ = _manageable_hub(request)
        revoked, next_url = request.page(request.context.broker.entities.revoked_publishers(hub.entity))
        return _feed(request, "RevokedPublishers", [_revoked_entry(request, hub, one) for one in revoked], next_url)

    async def revoke(self, request: Request) -> Response:
        """Revoke a publisher, effective at once."""
        hub, caller = _manageable_hub(request)
        manager, actor = request.context.broker.manager, request.actor(caller)
        name = publisher_name(request.names["publisher"])
        revoked = await await_change(
            lambda on_done: manager.revoke_publisher(hub.entity.namespace, hub.name, name, actor, on_done)
        )
        return _entry(_revoked_entry(request, hub, revoked), 201)

    async def get_revoked(self, request: Request) -> Response:
        """One revoked publisher."""
        hub, _ = _manageable_hub(request)
        revoked = request.context.broker.entities.find_revoked_publisher(hub.entity, request.names["publisher"])
        if revoked is None:
            raise NotFound(hub.namespace.resource(hub.name, "revokedpublishers", request.names["publisher"]))
        return _entry(_revoked_entry(request, hub, revoked), 200)

    async def restore(self, request: Request) -> Response:
        """Restore a revoked publisher."""
        hub, caller = _manageable_hub(request)
        manager, actor = request.context.broker.manager, request.actor(caller)
        await await_change(
            lambda on_done: manager.restore_publisher(
                hub.entity.namespace, hub.name, request.names["publisher"], actor, on_done
            )
        )
        return _empty_response()


# --- authorization ----------------------------------------------------------------------------------------------------


def _hub(request: Request, right: Rights) -> tuple[HubView, Caller]:
    """The hub of the path. Only callers with the right learn that a hub does not exist."""
    caller, name = request.sign_in_to_hub()
    return caller.hub(name, right, request.context.now_s), caller


def _manageable_hub(request: Request) -> tuple[HubView, Caller]:
    return _hub(request, Rights.MANAGE)


def _readable_hub(request: Request) -> tuple[HubView, Caller]:
    return _hub(request, Rights.LISTEN)


# --- parsing ---------------------------------------------------------------------------------------------------------


def _hub_spec(elements: Mapping[str, xml.Element]) -> HubSpec:
    days = _number(elements, "MessageRetentionInDays")
    metadata = elements.get("UserMetadata")
    status = (elements["Status"].text.strip() if "Status" in elements else "") or Status.ACTIVE.value
    if status not in _STATUSES:
        raise InvalidArgument("Status", status, "Active, Disabled, SendDisabled or ReceiveDisabled")
    return HubSpec(
        partition_count=_number(elements, "PartitionCount"),
        retention_hours=days * HOURS_PER_DAY if days else None,
        status=Status(status),
        user_metadata="" if metadata is None else metadata.text,
    )


def _number(elements: Mapping[str, xml.Element], name: str) -> int | None:
    text = elements[name].text.strip() if name in elements else ""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise InvalidArgument(name, text, "a number")
    return int(text)


def _rules(element: xml.Element | None) -> list[_Rule]:
    return [] if element is None else [_rule(rule) for rule in element.children if rule.name == "AuthorizationRule"]


def _rule(element: xml.Element) -> _Rule:
    name = element.child_text("KeyName")
    if name is None:
        raise MalformedRequest("an AuthorizationRule has no KeyName")
    rights = element.child("Rights")
    names = [] if rights is None else [right.text.strip() for right in rights.children]
    return rule_name(name), Rights.parse(names), element.child_text("PrimaryKey"), element.child_text("SecondaryKey")


# --- serializing -----------------------------------------------------------------------------------------------------


def _url(request: Request, *path: str) -> str:
    encoded = "/".join(quote(part, safe="$/") for part in path)
    return f"{request.base_url}/{encoded}?api-version={quote(request.api_version)}"


def _empty_response() -> Response:
    return Response(b"", 200, media_type=XML_TYPE)


def _entry(entry: xml.Entry, status: int) -> Response:
    return Response(entry.document(), status, media_type=xml.ENTRY_TYPE)


def _feed(request: Request, title: str, entries: list[xml.Entry], next_url: str | None) -> Response:
    url = f"{request.base_url}{request.scope['raw_path'].decode('ascii')}?api-version={quote(request.api_version)}"
    body = xml.feed(title, url, request.base_url, entries, request.context.clock.now_ms(), next_url)
    return Response(body, 200, media_type=xml.FEED_TYPE)


def _hub_entry(request: Request, caller: Caller, hub: Hub, *, is_manager: bool) -> xml.Entry:
    size_bytes = caller.visible_hub(hub.name).size_bytes
    rules = request.context.broker.entities.rules(hub) if is_manager else ()
    ids = "".join(f"<a:string>{id_}</a:string>" for id_ in hub.partition_ids)
    content = "".join(
        (
            xml.tag("MessageRetentionInDays", hub.retention.days),
            xml.tag("SizeInBytes", size_bytes),
            f"<AuthorizationRules>{''.join(map(_rule_xml, rules))}</AuthorizationRules>",
            xml.tag("Status", hub.status.value),
            xml.tag("CreatedAt", xml.instant(hub.created_ms)),
            xml.tag("UpdatedAt", xml.instant(hub.updated_ms)),
            xml.tag("UserMetadata", hub.user_metadata),
            xml.tag("PartitionCount", hub.partition_count),
            f'<PartitionIds xmlns:a="{xml.ARRAYS}">{ids}</PartitionIds>',
            xml.tag("EntityAvailabilityStatus", "Available"),
        )
    )
    return xml.Entry(
        url=_url(request, hub.name),
        title=hub.name,
        content=xml.description("EventHubDescription", content),
        author=hub.namespace,
        published_ms=hub.created_ms,
        updated_ms=hub.updated_ms,
    )


def _rule_xml(rule: AccessRule) -> str:
    rights = "".join(xml.tag("AccessRights", right) for right in rule.rights.names)
    return "".join(
        (
            '<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>',
            f"<ClaimValue>None</ClaimValue><Rights>{rights}</Rights>",
            xml.tag("CreatedTime", xml.instant(rule.created_ms)),
            xml.tag("ModifiedTime", xml.instant(rule.updated_ms)),
            xml.tag("KeyName", rule.name),
            xml.tag("PrimaryKey", rule.primary_key),
            xml.tag("SecondaryKey", rule.secondary_key),
            "</AuthorizationRule>",
        )
    )


def _group_entry(request: Request, hub: HubView, group: ConsumerGroup) -> xml.Entry:
    content = "".join(
        (
            xml.tag("CreatedAt", xml.instant(group.created_ms)),
            xml.tag("UpdatedAt", xml.instant(group.updated_ms)),
            xml.tag("UserMetadata", group.user_metadata),
        )
    )
    return xml.Entry(
        url=_url(request, hub.name, "consumergroups", group.name),
        title=group.name,
        content=xml.description("ConsumerGroupDescription", content),
        author=hub.entity.namespace,
        published_ms=group.created_ms,
        updated_ms=group.updated_ms,
    )


def _partition_entry(request: Request, hub: HubView, group: ConsumerGroup, partition: str) -> xml.Entry:
    info = request.context.broker.runtime_information.partition_info(hub, partition, request.context.clock.monotonic())
    return xml.Entry(
        url=_url(request, hub.name, "consumergroups", group.name, "partitions", partition),
        title=partition,
        content=xml.description("PartitionDescription", _partition_xml(info, request.api_version)),
        author=hub.entity.namespace,
        published_ms=hub.entity.created_ms,
        updated_ms=max(info.last_enqueued_ms, hub.entity.created_ms),
    )


def _partition_xml(info: PartitionInfo, api_version: str) -> str:
    elements: list[tuple[str, object]] = [
        ("SizeInBytes", info.size_bytes),
        ("BeginSequenceNumber", info.begin_sequence),
        ("EndSequenceNumber", info.last_sequence),
        ("IncomingBytesPerSecond", round(info.rate.incoming)),
        ("OutgoingBytesPerSecond", round(info.rate.outgoing)),
    ]
    if api_version >= _LAST_ENQUEUED_SINCE:
        elements += [
            ("LastEnqueuedOffset", info.last_offset),
            ("LastEnqueuedTimeUtc", xml.instant(info.last_enqueued_ms)),
        ]
    return "".join(xml.tag(name, value) for name, value in elements)


def _revoked_entry(request: Request, hub: HubView, revoked: RevokedPublisher) -> xml.Entry:
    return xml.Entry(
        url=_url(request, hub.name, "revokedpublishers", revoked.name),
        title=revoked.name,
        content=xml.description("RevokedPublisherDescription", xml.tag("Name", revoked.name)),
        author=hub.entity.namespace,
        published_ms=revoked.revoked_ms,
        updated_ms=revoked.revoked_ms,
    )
