"""The broker's surface: what endpoints and the portal may import, and what they cannot reach through it."""

import ast
import inspect
import sys
import textwrap
import typing
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from types import ModuleType

import hubmere.broker
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.store.catalog.view import CatalogView
from hubmere.store.engine import Catalog, LogEngine, PartitionLog

# Live state and storage: a protocol with one of these objects could bypass the broker's checks.
FORBIDDEN: frozenset[type] = frozenset({LiveHub, LiveNamespace, PartitionLog, LogEngine, Catalog, CatalogView})


# What endpoints and the portal may use. Every protocol may rely on the names in this list.
SURFACE = """
Actor AdminToken Assignment AuditLine AuditLog BearerToken Broker CAPTURE_STARTING CLUSTER_CONDITION CONDITION_NAMES
Caller CapturedFile ClassicGroup Coalescer Commit Condition ConditionSeverity ConnectionStringCredential ConnectionView
Connections ConsumerGroup ConsumerGroupConfig ConsumerGroupDescription ConsumerMemberView CoordinationRefused
Coordinator Copy Credential EmbeddedSubscription EndSpan Entities GroupAdministration GroupDescription GroupOverview
GroupPosition GroupProtocol GroupReplica GroupState GroupType Heartbeat HeartbeatAnswer HubCaptureStatus HubCopy
HubInfo HubReplica HubReport HubView IssuerKeys JobReport JobState JoinRequest JoinResponse Judge KeysPending
LAG_BOUNDS_S LinkRole LinkView LiveConnection LogOpening LoopLag MAX_DESCRIBED MAX_LINK_VIEWS MAX_OPENING_WAIT_S
MalformedBytes MalformedKeys Manager MemberView NamedPartition NamespaceView NewFile OnDone Outbox OverLimit
PairingClaim PartitionCaptureStatus PartitionInfo PartitionRead PartitionReader PartitionReport PartitionView Peek
PendingOffset Phase PlannedHub PlannedOffset Principal ProcessorGroup ProcessorPosition ProcessorState Processors
Publisher Reader Reset ResetKind Resource RuleReplica RunCoalescer RunPart SharedAccessSignature SharedKey Steal
Supervision SyncRequest SyncResponse TopicPartition Tracer Traffic Transaction TrustedKey Waiting blob_storage
copies_of display_text leader_epoch_refusal read_key_set refusals segment_lifetime_ms shared_limit_bytes split_run
"""


def test_surface_is_the_documented_list() -> None:
    """Everything else in the package may change without changes in the protocols."""
    assert sorted(hubmere.broker.__all__) == SURFACE.split()


def test_internal_objects_are_not_reachable_from_the_surface() -> None:
    """Import rules are not enough: an object that leads to a log lets its owner bypass every check."""
    paths: dict[type, str] = {}
    waiting = deque((cls, name) for name in hubmere.broker.__all__ for cls in classes_in(getattr(hubmere.broker, name)))
    reached = []
    while waiting:
        cls, path = waiting.popleft()
        if cls in FORBIDDEN:
            reached.append(path)
        elif cls not in paths and cls.__module__.startswith("hubmere."):
            paths[cls] = path
            waiting.extend((found, f"{path}.{name}") for name, found in public_types(cls))

    assert reached == []


def public_types(cls: type) -> Iterator[tuple[str, type]]:
    """The classes that the owner of an object gets from it: attributes, properties and results of methods."""
    names = _names_of(sys.modules[cls.__module__])
    annotations = [*typing.get_type_hints(cls, names).items(), *_assigned_attributes(cls, names)]
    for name, member in inspect.getmembers(cls):
        function = member.fget if isinstance(member, property) else member
        if inspect.isroutine(function) and hasattr(function, "__annotations__"):
            annotations.append((name, typing.get_type_hints(function, names).get("return")))
    for name, annotation in annotations:
        if not name.startswith("_"):
            yield from ((name, found) for found in classes_in(annotation))


def classes_in(annotation: object) -> Iterator[type]:
    """The classes of an annotation and of its arguments, except the arguments of callbacks."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        yield annotation
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is Callable:
        arguments = arguments[1:]
    for argument in arguments:
        yield from classes_in(argument)


def _assigned_attributes(cls: type, names: dict[str, object]) -> Iterator[tuple[str, object]]:
    """The types of `self.x = x` and `self.x = X(...)` in `__init__`."""
    constructor = inspect.getattr_static(cls, "__init__")
    if not inspect.isfunction(constructor) or is_dataclass(cls):
        return
    [function] = ast.parse(textwrap.dedent(inspect.getsource(constructor))).body
    parameters = typing.get_type_hints(constructor, names)
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Name(id=value)):
                yield name, parameters.get(value)
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call(func=ast.Name(id=value))
            ):
                yield name, names.get(value)
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=annotation):
                yield name, eval(ast.unparse(annotation), dict(names))


@cache
def _names_of(module: ModuleType) -> dict[str, object]:
    """The names that annotations in a module may use: its globals, and what it imports for type checking only."""
    names = dict(vars(module))
    for block in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for imported in (node for node in block.body if isinstance(node, ast.ImportFrom)):
                source = import_module(str(imported.module))
                names.update({alias.asname or alias.name: getattr(source, alias.name) for alias in imported.names})
    return names
