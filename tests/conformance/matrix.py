"""What is claimed of foreign clients: client by transport by feature, and what does not pass yet with its reason.

Each claim is a cell, and each cell has at least one test that is marked with it:

    pytestmark = [pytest.mark.foreign, pytest.mark.judges(client=Name.JS)]

    @pytest.mark.judges(feature=Feature.BATCHES)
    def test_...

Marks of a module, a test and a parameter are taken together, the nearest wins. `docs/compatibility.md` is rendered from
here by `report.py`; a test holds claims and tests together.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from conformance.arena import Transport
from conformance.clients import CACHE, PACKAGE_JSON, POM

MARK = "judges"
# What the last runs of the tests gave, by test.
RESULTS = CACHE / "conformance.json"
_ROOT = Path(__file__).parents[2]


class Name(StrEnum):
    """The clients, by the names under which they are published."""

    PYTHON = "azure-eventhub"
    PYTHON_ASYNC = "azure-eventhub (asyncio)"
    PROCESSOR = "azure-eventhub-checkpointstoreblob"
    JS = "@azure/event-hubs"
    JAVA = "azure-messaging-eventhubs"
    PROTON = "python-qpid-proton"
    RHEA = "rhea"


class Feature(StrEnum):
    """What a client can do; the value is the row of the compatibility page."""

    BATCHES = "batches"
    SINGLES = "single events"
    KEY = "partition key"
    PARTITION = "one partition"
    LARGE = "events of several frames"
    BODIES = "value and sequence bodies"
    BUFFERED = "buffered producer"
    IDEMPOTENT = "idempotent producer"
    POSITIONS = "start positions"
    LATEST = "only what comes from now on"
    PREFETCH = "prefetch and credit"
    DRAIN = "drain"
    GROUPS = "consumer groups"
    OWNER = "owner level"
    LAST_ENQUEUED = "last enqueued information"
    PROPERTIES = "hub and partition properties"
    CHECKPOINTS = "checkpoints"
    PROCESSOR = "processor"
    FAIL_OVER = "processors share and take over"
    REFUSALS = "refusals as the client's own errors"
    THROTTLING = "throttling is told at once"


@dataclass(frozen=True, slots=True)
class Cell:
    """One claim."""

    client: Name
    transport: Transport
    feature: Feature


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client, where its pinned version stands, and what is claimed of it."""

    name: Name
    language: str
    version: Callable[[], str]
    claims: Mapping[Transport, frozenset[Feature]]


# --- versions --------------------------------------------------------------------------------------------------------


def _of_pip(package: str) -> Callable[[], str]:
    return lambda: _found(rf"(?mi)^{re.escape(package)}==(\S+)", _ROOT / "constraints.txt")


def _of_npm(package: str) -> Callable[[], str]:
    return lambda: str(json.loads(PACKAGE_JSON.read_bytes())["dependencies"][package])


def _of_maven(artifact: str) -> Callable[[], str]:
    return lambda: _found(rf"<artifactId>{re.escape(artifact)}</artifactId>\s*<version>([^<]+)</version>", POM)


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(encoding="utf-8"))
    assert match is not None, f"{path.name} pins no version for {pattern}"
    return match.group(1)


# --- claims ----------------------------------------------------------------------------------------------------------


def _over(transports: Iterable[Transport], *features: Feature) -> dict[Transport, frozenset[Feature]]:
    return dict.fromkeys(transports, frozenset(features))


def _everywhere(*features: Feature) -> dict[Transport, frozenset[Feature]]:
    return _over(Transport, *features)


CLIENTS: tuple[Client, ...] = (
    Client(
        name=Name.PYTHON,
        language="Python",
        version=_of_pip("azure-eventhub"),
        claims={
            Transport.PLAIN: frozenset(
                {
                    Feature.BATCHES,
                    Feature.SINGLES,
                    Feature.KEY,
                    Feature.LARGE,
                    Feature.BODIES,
                    Feature.BUFFERED,
                    Feature.POSITIONS,
                    Feature.LATEST,
                    Feature.GROUPS,
                    Feature.OWNER,
                    Feature.LAST_ENQUEUED,
                    Feature.PROPERTIES,
                    Feature.CHECKPOINTS,
                    Feature.REFUSALS,
                    Feature.THROTTLING,
                }
            ),
            Transport.TLS: frozenset({Feature.BATCHES}),
            Transport.WEB_SOCKET: frozenset({Feature.BATCHES}),
        },
    ),
    Client(
        name=Name.PYTHON_ASYNC,
        language="Python, asyncio",
        version=_of_pip("azure-eventhub"),
        claims={
            Transport.PLAIN: frozenset({Feature.BATCHES, Feature.BUFFERED, Feature.PROCESSOR}),
            Transport.TLS: frozenset({Feature.BATCHES}),
        },
    ),
    Client(
        name=Name.PROTON,
        language="Python, AMQP 1.0 without an SDK",
        version=_of_pip("python-qpid-proton"),
        claims={
            Transport.PLAIN: frozenset(
                {Feature.SINGLES, Feature.LARGE, Feature.POSITIONS, Feature.DRAIN, Feature.REFUSALS}
            ),
            Transport.TLS: frozenset({Feature.SINGLES}),
        },
    ),
    Client(
        name=Name.JS,
        language="Node.js",
        version=_of_npm("@azure/event-hubs"),
        claims=_everywhere(
            Feature.BATCHES,
            Feature.SINGLES,
            Feature.KEY,
            Feature.PARTITION,
            Feature.LARGE,
            Feature.BUFFERED,
            Feature.IDEMPOTENT,
            Feature.POSITIONS,
            Feature.LATEST,
            Feature.PREFETCH,
            Feature.GROUPS,
            Feature.OWNER,
            Feature.LAST_ENQUEUED,
            Feature.PROPERTIES,
            Feature.PROCESSOR,
            Feature.REFUSALS,
        ),
    ),
    Client(
        name=Name.JAVA,
        language="Java",
        version=_of_maven("azure-messaging-eventhubs"),
        claims=_everywhere(
            Feature.BATCHES,
            Feature.SINGLES,
            Feature.KEY,
            Feature.LARGE,
            Feature.BUFFERED,
            Feature.POSITIONS,
            Feature.PREFETCH,
            Feature.OWNER,
            Feature.LAST_ENQUEUED,
            Feature.PROPERTIES,
            Feature.PROCESSOR,
            Feature.REFUSALS,
        ),
    ),
    Client(
        name=Name.PROCESSOR,
        language="Python, with checkpoints in Azurite",
        version=_of_pip("azure-eventhub-checkpointstoreblob"),
        claims=_over((Transport.PLAIN,), Feature.FAIL_OVER),
    ),
    Client(
        name=Name.RHEA,
        language="Node.js, AMQP 1.0 without an SDK",
        version=_of_npm("rhea"),
        claims=_everywhere(
            Feature.SINGLES, Feature.LARGE, Feature.POSITIONS, Feature.PREFETCH, Feature.DRAIN, Feature.REFUSALS
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Gap:
    """What does not pass yet, with the reason that a user is told; no feature stands for all of them."""

    client: Name
    transport: Transport
    feature: Feature | None
    reason: str


GAPS: tuple[Gap, ...] = (
    *(
        Gap(
            Name.JS,
            transport,
            Feature.THROTTLING,
            "a throttled send is answered by detaching the link, and the client waits for its own operation timeout "
            "before it tries again",
        )
        for transport in Transport
    ),
)


def claims() -> set[Cell]:
    """Every claim, gaps not among them."""
    return {
        Cell(client.name, transport, feature)
        for client in CLIENTS
        for transport, features in client.claims.items()
        for feature in features
    }


def version_of(name: Name) -> str:
    """The pinned version of a client."""
    return next(client.version() for client in CLIENTS if client.name is name)


def cell_of(item: pytest.Item) -> Cell | None:
    """The claim that a test proves; None for a test that proves none."""
    parts: dict[str, object] = {}
    for mark in reversed(list(item.iter_markers(MARK))):
        parts.update(mark.kwargs)
    if not parts:
        return None
    missing = {"client", "transport", "feature"} - parts.keys()
    assert not missing, f"{item.nodeid}: its marks do not say which {', '.join(sorted(missing))}"
    return Cell(Name(str(parts["client"])), Transport(str(parts["transport"])), Feature(str(parts["feature"])))
