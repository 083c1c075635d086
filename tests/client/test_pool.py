"""Clients that a process reuses between tasks, on a real node."""

import subprocess
import sys
from dataclasses import replace

import pytest

from client.hubs import Hubs, an_account
from hubmere.client.connection import Account, Client, Connection
from hubmere.client.consumer import HubReader
from hubmere.client.pool import MAX_IDLE, pooled_client

FORK = """
import os
from hubmere.client import pool
from hubmere.client.connection import Account, KafkaAddress

with pool.pooled_client(Account(address=KafkaAddress(host="any", port=1, is_secure=False), connection_string="")):
    pass
assert len(pool._idle) == 1
if not (child := os.fork()):
    os._exit(len(pool._idle))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def connection_of(client: Client) -> Connection:
    """The connection that a client uses now."""
    return client.call(lambda connection: connection)


def kept_connection(account: Account) -> Connection:
    """The connection that one task used."""
    with pooled_client(account) as client:
        return connection_of(client)


def test_next_task_finds_a_connection_that_is_signed_in(hubs: Hubs) -> None:
    """Tasks of a worker follow each other quickly."""
    account = replace(an_account(hubs.node), client_id="hubmere-next")
    first = kept_connection(account)

    second = kept_connection(account)

    assert second is first


def test_two_tasks_at_the_same_time_have_separate_clients(hubs: Hubs) -> None:
    """A query that joins a hub with itself may read both sides in turns."""
    account = replace(an_account(hubs.node), client_id="hubmere-owners")

    with pooled_client(account) as one, pooled_client(account) as other:
        connections = {connection_of(one), connection_of(other)}

    assert len(connections) == 2
    assert kept_connection(account) in connections


def test_failed_task_leaves_no_connection_to_the_next(hubs: Hubs) -> None:
    """Unread responses may still arrive on it."""
    account = replace(an_account(hubs.node), client_id="hubmere-fails")
    first = kept_connection(account)

    with pytest.raises(ZeroDivisionError), pooled_client(account):
        raise ZeroDivisionError

    assert kept_connection(account) is not first


def test_connection_that_the_node_closed_is_replaced_without_a_failure(disk_hubs: Hubs) -> None:
    """A node may restart between two tasks; even a client without retries must not notice."""
    hub = disk_hubs.new(partitions=3)
    account = replace(an_account(disk_hubs.node, patience_s=0.0), client_id="hubmere-ended")
    first = kept_connection(account)
    disk_hubs.node.kill()
    disk_hubs.node.start()

    with pooled_client(account) as client:
        count = HubReader(client, hub).partition_count()

    assert count == 3
    assert kept_connection(account) is not first


def test_oldest_of_too_many_clients_is_closed(hubs: Hubs) -> None:
    """A process that reads many hubs must not keep connections without limit."""
    accounts = [replace(an_account(hubs.node), client_id=f"hubmere-many-{number}") for number in range(MAX_IDLE + 1)]
    connections = [kept_connection(account) for account in accounts]

    again = [kept_connection(account) for account in (accounts[-1], accounts[0])]

    assert again[0] is connections[-1]
    assert again[1] is not connections[0]


def test_child_process_does_not_inherit_a_client() -> None:
    """Two processes on one socket would read each other's responses."""
    found = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=False, timeout=600)

    assert found.stdout.strip() == "0", found.stderr
