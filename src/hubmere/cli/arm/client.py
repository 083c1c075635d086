"""Client of the management API: reads, writes and lists resources by name over ARM (reference: service 4.2). For an
unknown name it lists the existing ones, to suggest the nearest in the error. It does not validate values; the node
does.
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.http import NOT_FOUND, TIMEOUT_S, NodeHttp, Refused
from hubmere.cli.target.node import NodeTarget
from hubmere.client.http import HttpResponse

Json = dict[str, Any]
# Kinds and names in turn, from the namespace down: ("namespaces", "ns", "eventhubs", "orders").
Resource = tuple[str, ...]

NAMESPACES = "namespaces"
HUBS = "eventhubs"
GROUPS = "consumergroups"
RULES = "authorizationRules"
ALIASES = "disasterRecoveryConfigs"
APPLICATION_GROUPS = "applicationGroups"
KAFKA_GROUPS = "kafkaGroups"
PROCESSORS = "processors"
STORAGE_ACCOUNTS = "storageAccounts"
NETWORK = ("networkRuleSets", "default")

DEFAULT_SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
DEFAULT_RESOURCE_GROUP = "hubmere"

_NOUNS = {
    NAMESPACES: "namespace",
    HUBS: "event hub",
    GROUPS: "consumer group",
    RULES: "authorization rule",
    ALIASES: "alias",
    APPLICATION_GROUPS: "application group",
    KAFKA_GROUPS: "Kafka group",
    PROCESSORS: "event processor",
    STORAGE_ACCOUNTS: "storage account",
}
_API_VERSION = "2024-01-01"
_PROVIDER = "providers/Microsoft.EventHub"
_STORAGE_PROVIDER = "providers/Microsoft.Storage"
_NO_CONTENT = 204
# How many names an error lists when none is similar: one line, not a page.
_SHOWN_NAMES = 8


class Arm:
    """Resources of one node. Thread rule: one owner."""

    def __init__(
        self, target: NodeTarget, subscription: str, resource_group: str, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._target = target
        self._http = NodeHttp(target, timeout_s)
        self._subscription = f"/subscriptions/{quote(subscription, safe='')}/{_PROVIDER}"
        self._group = (
            f"/subscriptions/{quote(subscription, safe='')}/resourceGroups/{quote(resource_group, safe='')}/{_PROVIDER}"
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def namespace(self, name: str | None) -> str:
        """The namespace: the given one, the node's own, or the only one."""
        if name or self._target.namespace:
            return name or self._target.namespace or ""
        names = [str(one["name"]) for one in self.list((NAMESPACES,))]
        if len(names) != 1:
            raise CommandFailed(Exit.USAGE, f"which namespace? There are {', '.join(names)}")
        return names[0]

    # --- one resource ---

    def get(self, at: Resource) -> Json:
        """Read a resource."""
        return _object(self._ask("GET", at))

    def find(self, at: Resource) -> Json | None:
        """Read a resource; None when it does not exist."""
        try:
            return _object(self._request("GET", self._path(at)))
        except Refused as refused:
            if refused.status == NOT_FOUND:
                return None
            raise

    def put(self, at: Resource, body: Json) -> Json:
        """Create a resource, or replace its settings; its parent must exist."""
        try:
            return _object(self._request("PUT", self._path(at), body))
        except Refused as refused:
            raise self.explain(refused, at[:-2]) from None

    def patch(self, at: Resource, body: Json) -> Json:
        """Change some settings of a resource."""
        return _object(self._ask("PATCH", at, body))

    def post(self, at: Resource, action: str, body: Json | None = None) -> Json:
        """Run an action of a resource."""
        return _object(self._ask("POST", at, body, action))

    def delete(self, at: Resource) -> bool:
        """Delete a resource; False when it did not exist."""
        return self._ask("DELETE", at).status != _NO_CONTENT

    def is_name_free(self, name: str) -> Json:
        """Whether the name of a new namespace is free."""
        return _object(self._request("POST", f"{self._subscription}/checkNameAvailability", {"name": name}))

    # --- many ---

    def list(self, at: Resource, query: Mapping[str, object] | None = None) -> list[Json]:
        """The resources of the kind in which the path ends; a query such as `$top` selects a part of them."""
        try:
            return list(self._items(at, query))
        except Refused as refused:
            raise self.explain(refused, at[:-1]) from None

    def _items(self, at: Resource, query: Mapping[str, object] | None = None) -> Iterator[Json]:
        words = {**(query or {}), "api-version": _API_VERSION}
        path: str | None = f"{self._path(at)}?{urlencode(words, safe='$')}"
        while path is not None:
            page = _object(self._request("GET", path))
            yield from page["value"]
            following = urlsplit(page.get("nextLink") or "")
            path = f"{following.path}?{following.query}" if following.path else None

    # --- asking ---

    def _path(self, at: Resource, action: str = "") -> str:
        group = self._group
        if at[0] == STORAGE_ACCOUNTS:
            group = group.removesuffix(_PROVIDER) + _STORAGE_PROVIDER
        return "/".join((group, *(quote(part, safe="$") for part in at), *((action,) if action else ())))

    def _ask(self, method: str, at: Resource, body: Json | None = None, action: str = "") -> HttpResponse:
        try:
            return self._request(method, self._path(at, action), body)
        except Refused as refused:
            raise self.explain(refused, at) from None

    def _request(self, method: str, path: str, body: Json | None = None) -> HttpResponse:
        version = "" if "api-version=" in path else f"?api-version={_API_VERSION}"
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        if content is None and method == "POST":
            content = b""
        return self._http.request(method, path + version, content, headers)

    # --- names ---

    def explain(self, refused: Refused, at: Resource) -> CommandFailed:
        """The error for a refusal; if a resource does not exist, it also names those that do."""
        if refused.status == NOT_FOUND:
            for end in range(2, len(at) + 1, 2):
                if (missing := self.missing(at[:end])) is not None:
                    return CommandFailed(Exit.NOT_FOUND, missing)
        return refused

    def missing(self, at: Resource) -> str | None:
        """The error text for a missing resource; None when it exists, or when that cannot be determined."""
        *parent, kind, name = at
        try:
            names = [str(one["name"]) for one in self._items((*parent, kind))]
        except CommandFailed:
            return None
        if kind not in _NOUNS or any(name.lower() == known.lower() for known in names):
            return None
        return f"there is no {_NOUNS[kind]} '{name}'{_beside(name, names)}"


def _beside(name: str, names: Sequence[str]) -> str:
    folded = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), list(folded), n=1)
    if near:
        return f"; did you mean '{folded[near[0]]}'?"
    if not names:
        return ", and there are no others"
    more = ", ..." if len(names) > _SHOWN_NAMES else ""
    return f"; there are {', '.join(names[:_SHOWN_NAMES])}{more}"


def _object(answer: HttpResponse) -> Json:
    body: Json = json.loads(answer.body) if answer.body else {}
    return body


def merge(present: Json, changes: Json) -> Json:
    """Merge changes into a copy of an object, at every level."""
    result = dict(present)
    for name, value in changes.items():
        there = result.get(name)
        result[name] = merge(there, value) if isinstance(value, dict) and isinstance(there, dict) else value
    return result
