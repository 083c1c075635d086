"""Secrets are used everywhere and shown nowhere: not in logs, plans, event logs, exceptions and command lines.

A program reads, writes, streams and captures with Spark at INFO and our loggers at DEBUG, and each part also fails on
purpose. Everything that it and its children write is searched.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from client.hubs import Hubs, bodies
from pipeline.capture.plans import TOKEN, PlanServer, a_hub
from pipeline.capture.stores import ACCOUNT, KEY, Store
from pipeline.queries import conf
from pipeline.secrets_shown import CommandLines, shown, texts_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="command lines are found by /proc"),
]

TESTS = Path(__file__).parents[2]
RUN_SECONDS = 3000
WRONG_KEY = "d3Jvbmcta2V5LXRoYXQtbm9ib2R5LXNob3dz"
WRONG_SECRET = "a-wrong-secret-that-nobody-shows"
SOON = "PT1S"


def a_signature(key: str) -> str:
    """A shared access signature for the account; with a wrong key it is invalid."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    until = datetime.now(UTC) + timedelta(hours=1)
    allowed = AccountSasPermissions(read=True, write=True, list=True, create=True)
    return str(generate_account_sas(ACCOUNT, key, ResourceTypes(container=True, object=True), allowed, until))


def write_arguments(hubs: Hubs, plans: PlanServer, folder: Path) -> Path:
    """The arguments of the program: a hub that works, and hubs that fail in different ways."""
    hub, target = hubs.new(2), hubs.new(2)
    hubs.publish(hub, 0, bodies(20))
    good = conf(hubs, hub)
    name = "eventhubs.connectionString"
    key = node_key(hubs)
    wrong = {**good, name: good[name].replace(key, WRONG_KEY), "eventhubs.operationTimeout": SOON}
    malformed = {**good, name: f"SharedAccessKeyName=root;SharedAccessKey={key}"}
    path = folder / "arguments.json"
    path.write_text(
        json.dumps(
            {
                "source": good, "target": conf(hubs, target), "wrong": wrong, "malformed": malformed,
                "plans": plans.url, "token": TOKEN, "folder": str(folder / "left"),
            }
        )
    )  # fmt: skip
    (folder / "left").mkdir()
    return path


def node_key(hubs: Hubs) -> str:
    return hubs.node.connection_string.rpartition("SharedAccessKey=")[2]


def planned(hubs: Hubs, azure: Store, s3: Store) -> list[dict[str, Any]]:
    """Hubs with each store and each credential, valid and invalid."""
    endpoint = azure.options["endpoint"]
    by_string = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
    wanted = [
        (azure.url, "Avro", {"endpoint": endpoint, "sas_token": a_signature(KEY)}),
        (azure.url, "Delta", {"connection_string": by_string}),
        (s3.url, "Delta", s3.options),
        (azure.url, "Avro", {"endpoint": endpoint, "sas_token": a_signature(WRONG_KEY)}),
        ("s3://there-is-none/x", "Delta", {**s3.options, "secret_access_key": WRONG_SECRET}),
    ]
    found = []
    for url, encoding, options in wanted:
        hub = hubs.new(1)
        hubs.publish(hub, 0, bodies(5))
        found.append(a_hub(hubs, hub, url, partitions=1, encoding=encoding, options=options))
    return found


def signatures(planned: list[dict[str, Any]]) -> dict[str, str]:
    """The keys that sign the tokens of a plan."""
    tokens = [parse_qs(hub["destination"]["options"].get("sas_token", "")) for hub in planned]
    return {f"signature {number}": token["sig"][0] for number, token in enumerate(tokens) if token}


def test_no_output_contains_a_secret(
    hubs: Hubs, plans: PlanServer, tmp_path: Path, azure_store: Store, s3_store: Store
) -> None:
    """This holds for success and for failure."""
    plans.hubs = planned(hubs, azure_store, s3_store)
    secrets = {
        "the node's key": node_key(hubs),
        "the administrator's token": TOKEN,
        "the account's key": KEY,
        "the secret of S3": s3_store.options["secret_access_key"],
        "a wrong key": WRONG_KEY,
        "a wrong secret": WRONG_SECRET,
        **signatures(plans.hubs),
    }
    command = [sys.executable, "-m", "pipeline.verbose_program", str(write_arguments(hubs, plans, tmp_path))]

    with (
        (tmp_path / "said.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(TESTS)}) as process,
        CommandLines(process.pid) as lines,
    ):
        process.wait(RUN_SECONDS)

    out = (tmp_path / "said.log").read_text(encoding="utf-8", errors="replace")
    assert process.returncode == 0, out[-4000:]
    assert "capture ended with 1" in out
    assert " INFO " in out
    assert "DEBUG:hubmere" in out
    left = texts_of((tmp_path / "left").rglob("*"))
    assert any("/events/" in place and "SparkListenerSQLExecutionStart" in text for place, text in left.items())
    assert len(lines.found) > 3
    everything = {
        "what the program says": out,
        "what the job reports": json.dumps(plans.reports),
        "what the node logs": hubs.node.logs(),
        **left,
        **lines.texts(),
    }
    assert shown({"the name of a node of query plans": "RelationV2"}, everything)
    assert shown(secrets, everything) == []
    reported_errors = [each["error"] for each in plans.reports[-1]["hubs"]]
    assert [error is None for error in reported_errors] == [True, True, True, False, False]
