"""The HTTP client of one hub, for `send` and `tail`: every node serves HTTP, and every authorization rule allows it.

A credential with Send or Listen is enough. With Manage, the error for an unknown name suggests the nearest name.
"""

import inspect
import re
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hubmere.cli.arm.client import (
    DEFAULT_RESOURCE_GROUP,
    DEFAULT_SUBSCRIPTION,
    GROUPS,
    HUBS,
    NAMESPACES,
    Arm,
)
from hubmere.cli.arm.verbs import option, refuse_empty
from hubmere.cli.commands.completion import Level, completer
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.http import NOT_FOUND, NodeHttp, Refused
from hubmere.cli.target.node import NodeTarget
from hubmere.client.http import HttpResponse

_PARTITION_COUNT = re.compile(rb"<PartitionCount>(\d+)</PartitionCount>")

_IN_NAMESPACE: Level = ("namespace_name", NAMESPACES, None)

HUB_ARGUMENT = inspect.Parameter(
    "hub",
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    annotation=Annotated[
        str,
        typer.Argument(
            metavar="HUB",
            help="Name of the event hub.",
            show_default=False,
            autocompletion=completer([_IN_NAMESPACE, ("hub", HUBS, None)]),
        ),
    ],
)
NAMESPACE_OPTION = option(
    "namespace_name", str | None, "--namespace-name", metavar="NAME", help="Namespace. Default: the node's own.",
    autocompletion=completer([_IN_NAMESPACE]),
)  # fmt: skip


class HubClient:
    """A connection to one hub. Thread rule: one owner; `again` opens a connection for another thread."""

    def __init__(self, target: NodeTarget, namespace: str | None, hub: str) -> None:
        if target.hub is not None and target.hub.lower() != hub.lower():
            raise CommandFailed(Exit.USAGE, f"the connection string is for the hub '{target.hub}', not for '{hub}'")
        self._target, self._namespace, self.hub = target, namespace, hub
        self._http = NodeHttp(target)
        # The host selects the namespace, unless the path names one before the hub.
        names = (hub,) if namespace is None else (namespace, hub)
        self._base = "".join(f"/{quote(name, safe='')}" for name in names)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def again(self) -> "HubClient":
        """Another connection to the same hub."""
        return HubClient(self._target, self._namespace, self.hub)

    def post(self, below: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Publish to the hub, or to a path below it."""
        self._ask("POST", below, None, body, headers)

    def get(self, below: str, group: str | None = None) -> bytes:
        """Read a path of the hub; an error for a missing consumer group names `group`."""
        return self._ask("GET", below, group).body

    def partition_ids(self) -> list[str]:
        """The hub's partitions, from its Atom description, which requires only the right Listen."""
        found = _PARTITION_COUNT.search(self.get("?api-version=2014-01"))
        if found is None:
            raise CommandFailed(Exit.FAILED, f"the node's description of '{self.hub}' cannot be read")
        return [str(number) for number in range(int(found.group(1)))]

    def _ask(
        self,
        method: str,
        below: str,
        group: str | None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        try:
            return self._http.request(method, self._base + below, body, headers)
        except Refused as refused:
            if refused.status == NOT_FOUND:
                raise self._missing(refused, group) from None
            raise

    def _missing(self, refused: Refused, group: str | None) -> CommandFailed:
        with closing(Arm(self._target, DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP)) as arm:
            try:
                namespace = arm.namespace(self._namespace)
            except CommandFailed:
                return refused
            at = (NAMESPACES, namespace, HUBS, self.hub, *(() if group is None else (GROUPS, group)))
            return arm.explain(refused, at)


def hub_of(given: dict[str, Any], target: NodeTarget) -> HubClient:
    """The hub that the options name; removes these options from `given`."""
    namespace, hub = given.pop("namespace_name"), given.pop("hub")
    refuse_empty("--namespace-name", namespace)
    refuse_empty("HUB", hub)
    return HubClient(target, namespace, hub)
