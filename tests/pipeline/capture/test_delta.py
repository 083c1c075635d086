"""Delta tables in a folder, in Azure and in S3: every event once, at whatever time the job died."""

import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

from client.hubs import Hubs, bodies
from hubmere.pipeline.capture.destinations import DestinationFailed
from hubmere.pipeline.capture.destinations.delta import DataFile, commit_files, storage_options, table_files
from hubmere.pipeline.capture.verify import verify
from pipeline.capture.applications import an_application
from pipeline.capture.plans import NAMESPACE, PlanServer, a_hub, read
from pipeline.capture.stores import ACCOUNT, KEY, Store

VERSION = "_delta_log/{:020}.json"


def opened(store: Store, root: str) -> DeltaTable:
    """A table as a reader opens it."""
    url = f"{store.url}/{root}"
    parts = urlsplit(url)
    place = f"az:/{parts.path}" if parts.scheme == "az" else url
    return DeltaTable(place, storage_options=storage_options(url, store.options))


def rows(table: DeltaTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pyarrow_table(columns=["PartitionId", "SequenceNumber", "Body"]).to_pylist()
    return sorted(found, key=lambda row: (row["PartitionId"], row["SequenceNumber"]))


@pytest.mark.slow
def test_table_contains_every_event_once(
    spark: SparkSession, hubs: Hubs, plans: PlanServer, tmp_path: Path, store: Store
) -> None:
    """The job dies after its commit to the table, then before it: each window is in the table once."""
    hub = hubs.new(2)
    root = f"{NAMESPACE}/{hub}"
    checkpoint = tmp_path / "checkpoints" / root / f"first-{hub}"
    plans.hubs = [a_hub(hubs, hub, store.url, partitions=2, encoding="Delta", options=store.options)]
    hubs.publish(hub, 0, bodies(50, "first"))
    assert an_application(spark.sparkContext, plans, tmp_path / "checkpoints", once=True).run() == 0
    shutil.rmtree(checkpoint / "commits")
    hubs.publish(hub, 1, bodies(30, "second"))
    assert an_application(spark.sparkContext, plans, tmp_path / "checkpoints", once=True).run() == 0
    # All files are published, the table's log does not name the last one, and Spark has committed nothing.
    shutil.rmtree(checkpoint / "commits")
    store.remove(f"{root}/{VERSION.format(1)}")

    assert an_application(spark.sparkContext, plans, tmp_path / "checkpoints", once=True).run() == 0

    table = opened(store, root)
    expected = [("0", *each) for each in enumerate(bodies(50, "first"))]
    expected += [("1", *each) for each in enumerate(bodies(30, "second"))]
    assert [(row["PartitionId"], row["SequenceNumber"], row["Body"]) for row in rows(table)] == expected
    assert table.version() == 1
    proof = verify(read(hubs, plans.hubs[0]))
    assert proof.holds, proof.problems
    assert [each.compared for each in proof.partitions] == [50, 30]


# --- the log of a table, without Spark -------------------------------------------------------------------------------


def a_file(name: str) -> DataFile:
    return DataFile(f"PartitionId=0/{name}.parquet", 0, 100, 5, 1000)


def commit(store: Store, batch: int, names: Sequence[str]) -> None:
    """Commit files as a micro-batch does."""
    commit_files(f"{store.url}/shop/orders/", store.options, "f00", batch, [a_file(name) for name in names])


def committed(store: Store) -> set[str]:
    return {Path(name).stem for name in table_files(f"{store.url}/shop/orders/", store.options)}


def test_repeated_micro_batch_is_committed_once(store: Store) -> None:
    """It is recognized by the transaction in the table's log, also after later commits."""
    for batch, name in ((0, "a"), (0, "a"), (1, "b"), (0, "a"), (1, "b")):
        commit(store, batch, [name])

    assert committed(store) == {"a", "b"}
    assert opened(store, "shop/orders").version() == 1


def test_of_two_writers_of_one_version_one_is_refused(store: Store) -> None:
    """There are two drivers of one job, one of which was presumed dead: the store accepts only one of them."""
    commit(store, 0, ["a"])
    first, second = (opened(store, "shop/orders") for _ in range(2))

    def write(table: DeltaTable, name: str) -> None:
        action = AddAction(a_file(name).name, 100, {"PartitionId": "0"}, 1000, True, "{}")
        properties = CommitProperties(app_transactions=[Transaction("f00", 1)])
        table.create_write_transaction(
            [action], mode="append", schema=table.schema(), partition_by=["PartitionId"], commit_properties=properties
        )

    write(first, "b")
    with pytest.raises(CommitFailedError):
        write(second, "c")

    assert committed(store) == {"a", "b"}


def connection_string(endpoint: str) -> str:
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"


def signature() -> str:
    """A shared access signature for the account."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    everything = AccountSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True)
    kinds, until = ResourceTypes(container=True, object=True), datetime.now(UTC) + timedelta(hours=1)
    return str(generate_account_sas(ACCOUNT, KEY, kinds, everything, until))


@pytest.mark.parametrize("store", ["az"], indirect=True)
@pytest.mark.parametrize("credential", ["connection_string", "sas_token"])
def test_every_credential_of_an_account_opens_its_table(store: Store, credential: str) -> None:
    """A credential for the container is also used for the table's log."""
    endpoint = store.options["endpoint"]
    given = (
        {"connection_string": connection_string(endpoint)}
        if credential == "connection_string"
        else {"endpoint": endpoint, "sas_token": signature()}
    )
    other = Store(url=store.url, options=given)

    commit(other, 0, ["a"])

    assert committed(other) == {"a"}
    assert list(other.opened().files("shop/orders/_delta_log/"))


def test_connection_string_of_another_cloud_names_its_endpoint() -> None:
    """The suffix determines the address."""
    text = "AccountName=lake;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn"

    found = storage_options("az://lake/captured", {"connection_string": text})

    assert found == {
        "azure_storage_account_name": "lake",
        "azure_storage_account_key": "a2V5",
        "azure_storage_endpoint": "https://lake.blob.core.chinacloudapi.cn",
    }


WRONG = "d3Jvbmcta2V5LXRoYXQtbm9ib2R5LXNob3dz"
NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("store", "wrong", "ask"),
    [
        ("az", {"account_key": WRONG}, partial(commit, batch=0, names=["a"])),
        ("az", {"account_key": WRONG}, committed),
        ("s3", {"endpoint": NOWHERE, "secret_access_key": WRONG}, partial(commit, batch=0, names=["a"])),
    ],
    indirect=["store"],
)
def test_unreachable_store_is_reported_in_one_line_without_a_secret(
    store: Store, wrong: dict[str, str], ask: Callable[[Store], object]
) -> None:
    """Errors are written to logs and shown in the portal."""
    other = Store(url=store.url, options={**store.options, **wrong})

    with pytest.raises(DestinationFailed) as failure:
        ask(other)

    assert str(failure.value).startswith(f"{store.url}/shop/orders/: OSError: ")
    assert str(failure.value).isprintable()
    assert WRONG not in str(failure.value)
