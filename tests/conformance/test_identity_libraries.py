"""The identity libraries of other languages with the node's own issuer: unmodified, with environment variables only."""

import os
import stat
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest
from azure.identity import AzureCliCredential

from commands.runner import at
from conformance.clients import NotInstalled, go_program, js_clients, node
from conformance.driver import Driver
from conformance.java.conftest import build_java
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node

pytestmark = pytest.mark.foreign

_JS = Path(__file__).parent / "js" / "driver.mjs"
_OTHERS = ("AZURE_", "IDENTITY_", "MSI_", "HUBMERE_")
KINDS = ["default", "environment", "managed", "workload", "cli"]


@pytest.fixture(scope="module")
def running() -> Iterator[Node]:
    with Node(hubs=["orders"], settings={"local_identity": True}) as node:
        yield node


@pytest.fixture(scope="module")
def az(running: Node, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the path with `az`, which is our own command."""
    folder = tmp_path_factory.mktemp("az")
    command = folder / "az"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m hubmere "$@" --data {running.data}\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture(scope="module")
def java_command(running: Node, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return build_java(tmp_path_factory.mktemp("java"), running.ca_file)


def environment(node: Node, kind: str, az: Path) -> dict[str, str]:
    """The variables of the ready file for a kind of credential, and no other ones of Azure."""
    identity = node.identity
    variables: Mapping[str, str] = {
        "default": identity.env,
        "environment": identity.env,
        "managed": identity.managed_identity_env,
        "workload": identity.workload_identity_env,
        "cli": {},
    }[kind]
    plain = dict.fromkeys((name for name in os.environ if name.startswith(_OTHERS)), "")
    path = f"{az}{os.pathsep}{os.environ['PATH']}"
    return {**plain, **variables, "PATH": path, "NODE_EXTRA_CA_CERTS": node.ca_file, "SSL_CERT_FILE": node.ca_file}


def js_command() -> list[str]:
    js_clients()
    return [node(), str(_JS)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", ["js", "java", "go"])
def test_library_signs_in_with_variables_only(
    request: pytest.FixtureRequest, running: Node, az: Path, language: str, kind: str
) -> None:
    """The application's code selects the credential, and has nothing about the node's issuer."""
    body = uuid.uuid4().hex
    try:
        commands: dict[str, Callable[[], list[str]]] = {
            "js": js_command,
            "java": lambda: request.getfixturevalue("java_command"),
            "go": lambda: [str(go_program())],
        }
        command = commands[language]()
        variables = environment(running, kind, az)
        if language == "js":
            variables["HUBMERE_JS_CLIENTS"] = str(js_clients())
    except NotInstalled as reason:
        pytest.skip(str(reason))
    module, name = ("", "roundTripWithIdentity") if language == "java" else ("identity", "roundTrip")
    with Driver(command, variables) as driver:
        facts = driver.call(
            module, name, kind=kind, address=running.amqps, hub="orders", body=body, ca=running.ca_file, count=100
        )

    assert body in facts["seen"]


def test_cli_credential_of_python_uses_our_command(running: Node, az: Path) -> None:
    """`AzureCliCredential` runs `az`; the token is of the node's issuer, for the requested scope."""
    variables = {**os.environ, **environment(running, "cli", az)}
    with patch.dict(os.environ, variables, clear=True):
        text = AzureCliCredential(process_timeout=120).get_token("https://eventhubs.azure.net/.default").token

    answer = httpx.post(
        f"{running.http}/orders/messages", content=b"x", headers={"Authorization": f"Bearer {text}"}, timeout=60
    )
    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tenant", "contoso"), "no tenant 'contoso'"),
        (("--resource", "a", "--scope", "b"), "either --resource or --scope"),
    ],
)
def test_token_command_refuses_unknown_values(running: Node, arguments: tuple[str, ...], message: str) -> None:
    """The error names the expected values."""
    run = at(running, "account", "get-access-token", *arguments)

    assert run.code == Exit.USAGE
    assert message in run.err


def test_token_command_needs_a_node_with_an_issuer() -> None:
    """The message says how to start one."""
    with Node(hubs=["orders"]) as plain:
        run = at(plain, "account", "get-access-token")

    assert run.code == Exit.FAILED
    assert "--local-identity" in run.err
