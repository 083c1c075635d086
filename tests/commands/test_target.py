"""Which node a command uses: by data folder, address or connection string, and the errors if there is none."""

import json
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from commands.runner import at, hubmere
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.node import BearerToken, NodeFlags, NodeTarget, find_node
from hubmere.node.ready import READY_FILE
from hubmere.testing import Node

KEY = "Endpoint=sb://events.example.org/;SharedAccessKeyName=r;SharedAccessKey=k"


def a_folder(path: Path, **changes: object) -> Path:
    """The data folder of a running node."""
    ready = {
        "pid": 1, "admin_token": "secret", "namespace": "ns", "ca_file": "ca.pem", "http": "http://localhost:1",
        "https": "https://localhost:2",
    }  # fmt: skip
    (path / READY_FILE).write_text(json.dumps({**ready, **changes}), encoding="utf-8")
    return path


def found(environ: dict[str, str] | None = None, /, **given: Any) -> NodeTarget:
    return find_node(NodeFlags(**given), environ or {})


# --- which one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "environ", "url"),
    [
        ({"url": "https://a:1/", "token": "t"}, {"HUBMERE_URL": "http://b:2"}, "https://a:1"),
        ({}, {"HUBMERE_URL": "http://b:2", "HUBMERE_TOKEN": "t"}, "http://b:2"),
        ({"connection_string": KEY}, {}, "https://events.example.org:5301"),
        ({"connection_string": KEY}, {"HUBMERE_URL": "http://b:2"}, "http://b:2"),
        ({"connection_string": KEY + ";UseDevelopmentEmulator=true"}, {}, "http://events.example.org:5300"),
        ({}, {"HUBMERE_CONNECTION_STRING": KEY, "HUBMERE_DATA": "nowhere"}, "https://events.example.org:5301"),
        ({"url": "http://b:2"}, {"HUBMERE_CONNECTION_STRING": KEY}, "http://b:2"),
    ],
)
def test_flags_override_the_environment(given: dict[str, str], environ: dict[str, str], url: str) -> None:
    """A connection string overrides an address, and an address overrides a folder."""
    where = found(environ, **given)

    assert where.url == url


def test_folder_flag_overrides_the_address_in_the_environment(tmp_path: Path) -> None:
    """A flag overrides a variable."""
    where = found({"HUBMERE_URL": "http://b:2", "HUBMERE_TOKEN": "t"}, data=a_folder(tmp_path))

    assert (where.url, where.namespace, where.credential) == ("http://localhost:1", "ns", BearerToken("secret"))


@pytest.mark.parametrize(
    ("changes", "url"),
    [
        ({}, "http://localhost:1"),
        ({"http": None}, "https://localhost:2"),
        ({"http": "http://h:1", "https": "https://h:2"}, "https://h:2"),
        ({"http": "http://h:1", "https": "https://h:2", "ca_file": None}, "http://h:1"),
        ({"http": None, "https": "https://h:2", "ca_file": None}, "https://h:2"),
    ],
)
def test_token_is_sent_to_other_machines_only_over_tls_if_possible(
    tmp_path: Path, changes: dict[str, str | None], url: str
) -> None:
    """A host name may mean another machine."""
    where = found(data=a_folder(tmp_path, **changes))

    assert where.url == url


def test_commands_use_the_address_that_the_node_listens_on(tmp_path: Path) -> None:
    """An advertised port is that of a port mapping or proxy, which programs on the node's machine need not reach."""
    advertised = ["http://localhost:1", "https://events.example.org:3"]
    with Node(data=tmp_path / "data", settings={"advertised_listeners": advertised}) as node:
        assert node.http == "http://localhost:1"

        assert at(node, "eventhub", "create", "--name", "orders").code == Exit.OK
        assert at(node, "status", "-o", "json").json["namespaces"] == 1
        assert at(node, "portal").out.startswith("http://localhost:1/portal/?token=")


@pytest.mark.parametrize("is_open", [True, False])
def test_address_for_clients_is_used_if_the_local_one_is_closed(tmp_path: Path, is_open: bool) -> None:
    """The data folder of a node in a container may be mounted on its host, where only the mapped port is open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        local = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not is_open:
            server.close()

        where = found(data=a_folder(tmp_path, local_http=local))

    assert where.url == (local if is_open else "http://localhost:1")


def test_credentials_are_not_in_the_repr() -> None:
    """Values may end up in logs."""
    where = found(url="https://a:1", token="top-secret")

    assert "top-secret" not in repr((where, where.credential))


def test_key_becomes_a_token_for_the_hub_of_the_connection_string() -> None:
    """A rule of a hub is valid for that hub only."""
    where = found(connection_string=KEY + ";EntityPath=orders")

    assert where.hub == "orders"
    assert where.credential.header().startswith("SharedAccessSignature sr=sb%3A%2F%2Fevents.example.org%2Forders&")
    assert where.credential.header() == where.credential.header()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "https://a:1"}, "--url needs --token"),
        ({"url": "a:1", "token": "t"}, "--url a:1 is not a URL"),
        ({"url": "https://user@a:1", "token": "t"}, "is not a URL"),
        ({"url": "https://a:99999", "token": "t"}, "--url https://a:99999: expected a port from 0 to 65535"),
        ({"url": "https://a:http", "token": "t"}, "expected a port from 0 to 65535"),
        ({"connection_string": "nonsense"}, "connection string"),
        ({"connection_string": "Endpoint=sb://h/"}, "neither a rule with its key nor a signature"),
    ],
)
def test_incomplete_address_is_a_usage_error(given: dict[str, str], message: str) -> None:
    """It is reported before a connection is opened."""
    with pytest.raises(CommandFailed) as failure:
        found(**given)

    assert failure.value.code == Exit.USAGE
    assert message in failure.value.lines[0]


@pytest.mark.parametrize(
    ("given", "environ"),
    [
        ({}, {}),
        ({"data": Path("folder")}, {}),
        ({"data": Path("folder")}, {"HUBMERE_URL": "http://b:2"}),
        ({"connection_string": KEY}, {}),
        ({"connection_string": KEY, "url": "https://a:1"}, {}),
        ({}, {"HUBMERE_CONNECTION_STRING": KEY}),
        ({}, {"HUBMERE_CONNECTION_STRING": KEY, "HUBMERE_URL": "http://b:2"}),
        ({"profile": "one"}, {}),
        ({}, {"HUBMERE_PROFILE": "one", "HUBMERE_URL": "http://b:2"}),
    ],
)
def test_token_that_no_request_would_carry_is_a_usage_error(given: dict[str, Any], environ: dict[str, str]) -> None:
    """Another credential would be used in its place."""
    with pytest.raises(CommandFailed) as failure:
        found(environ, token="top-secret", **given)

    assert failure.value.code == Exit.USAGE
    assert failure.value.lines[0].startswith("--token needs the address of its node: --url or HUBMERE_URL")
    assert "top-secret" not in " ".join(failure.value.lines)


def test_token_flag_belongs_to_the_address_in_the_environment() -> None:
    """The address may be in the shell's profile, while the token is given for one command."""
    where = found({"HUBMERE_URL": "http://b:2"}, token="t")

    assert (where.url, where.credential) == ("http://b:2", BearerToken("t"))


# --- nobody there ----------------------------------------------------------------------------------------------------


def test_folder_without_a_node_is_reported(tmp_path: Path) -> None:
    """The error lists the ways to name another node."""
    run = hubmere("eventhub", "list", "--data", str(tmp_path))

    assert run.code == Exit.FAILED
    assert run.err.startswith(f"hubmere: no node runs on the data folder {tmp_path}\nhubmere: start one with")


def test_ready_file_of_a_killed_node_is_not_used(tmp_path: Path) -> None:
    """Another process may use its port, and must not get its token."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass

    with pytest.raises(CommandFailed) as failure:
        found(data=a_folder(tmp_path, pid=ended.pid))

    assert failure.value.lines[0] == f"no node runs on the data folder {tmp_path}"


def test_invalid_ready_file_is_reported(tmp_path: Path) -> None:
    """There is no traceback."""
    (tmp_path / READY_FILE).write_text("{", encoding="utf-8")
    broken = hubmere("eventhub", "list", "--data", str(tmp_path))
    a_folder(tmp_path, http=None, https=None)
    useless = hubmere("eventhub", "list", "--data", str(tmp_path))

    assert (broken.code, useless.code) == (Exit.FAILED, Exit.FAILED)
    assert "cannot be read" in broken.err
    assert "serves neither HTTP nor HTTPS" in useless.err


def test_address_without_a_listener_is_reported() -> None:
    """The error is one line, not a traceback."""
    run = hubmere("eventhub", "list", "--url", "http://127.0.0.1:1", "--token", "t")

    assert run.code == Exit.FAILED
    assert run.err.startswith("hubmere: http://127.0.0.1:1 cannot be reached: ")


def test_ca_file_that_cannot_be_used_is_named(node: Node, tmp_path: Path) -> None:
    """The address is not the problem, and nothing was sent."""
    end = ("eventhub", "list", "--url", node.https, "--token", node.admin_token, "--ca-file")
    other = tmp_path / "notes.txt"
    other.write_text("not a certificate", encoding="utf-8")

    missing, useless = (hubmere(*end, str(path)) for path in (tmp_path / "nowhere.pem", other))

    assert (missing.code, useless.code) == (Exit.USAGE, Exit.USAGE)
    assert missing.err == f"hubmere: the CA file {tmp_path}/nowhere.pem cannot be used: No such file or directory\n"
    assert useless.err == f"hubmere: the CA file {other} cannot be used: it holds no certificate\n"


def test_wrong_scheme_is_named_as_the_reason(node: Node) -> None:
    """Each port serves either plain HTTP or TLS; the texts of the libraries are puzzles."""
    token = ("--token", node.admin_token)

    secure = hubmere("eventhub", "list", "--url", node.http.replace("http:", "https:"), *token)
    plain = hubmere("eventhub", "list", "--url", node.https.replace("https:", "http:"), *token)

    assert "the port does not use TLS; try http://" in secure.err
    assert "a port with TLS needs https://" in plain.err


def test_line_end_after_a_token_is_ignored(node: Node) -> None:
    """Secrets that are mounted as files or variables often end with one."""
    assert hubmere("namespace", "list", HUBMERE_URL=node.http, HUBMERE_TOKEN=node.admin_token + "\n").code == Exit.OK


@pytest.mark.parametrize("token", ["two words", "two\nlines", "grün"])
def test_token_that_no_header_can_carry_is_wrong_usage(token: str) -> None:
    """The error does not contain the token."""
    with pytest.raises(CommandFailed) as failure:
        found(url="http://a:1", token=token)

    assert failure.value.code == Exit.USAGE
    assert token not in str(failure.value)


def test_address_from_a_connection_string_alone_is_reported_with_the_option_for_it() -> None:
    """The string has the port of AMQP, and a node may serve HTTP on any port."""
    text = "Endpoint=sb://127.0.0.2:5671;SharedAccessKeyName=r;SharedAccessKey=a2V5"

    assumed = hubmere("eventhub", "list", "--connection-string", text)
    named = hubmere("eventhub", "list", "--connection-string", text, "--url", "http://127.0.0.2:1")

    assert (assumed.code, named.code) == (Exit.FAILED, Exit.FAILED)
    assert assumed.err.startswith("hubmere: https://127.0.0.2:5301 cannot be reached: ")
    assert "name its address by --url" in assumed.err
    assert "--url" not in named.err


def test_node_keeps_its_ready_file_while_it_runs(tmp_path: Path) -> None:
    """Only its owner can read it, since it contains the keys."""
    path = tmp_path / "data" / READY_FILE
    with Node(data=tmp_path / "data") as node:
        content, mode = json.loads(path.read_bytes()), path.stat().st_mode & 0o777
        expected = asdict(node.ready)

    assert (content, mode) == (expected, 0o600)
    assert not path.exists()


# --- the ways in -----------------------------------------------------------------------------------------------------


def test_remote_node_is_reached_over_tls_with_its_ca(node: Node) -> None:
    """Address and token are given; the only namespace is used by default."""
    end = ("--url", node.https, "--token", node.admin_token, "--namespace-name", node.namespace)

    trusted = hubmere("eventhub", "show", "-n", "orders", *end, "--ca-file", node.ca_file)
    untrusted = hubmere("eventhub", "show", "-n", "orders", *end)

    assert trusted.code == Exit.OK
    assert untrusted.code == Exit.FAILED
    assert "is not trusted" in untrusted.err
    assert "--ca-file" in untrusted.err


def test_connection_string_with_manage_is_enough_for_its_namespace(node: Node) -> None:
    """The namespace need not be named."""
    end = ("--connection-string", node.connection_string, "--url", node.http)

    listed = hubmere("eventhub", "list", *end, "-o", "table").lines

    assert "orders" in {line.split()[0] for line in listed}


def test_rights_to_send_and_to_listen_are_enough_for_send_and_tail(node: Node, hub: str) -> None:
    """Devices and dashboards have only these rights."""
    strings = {}
    for right in ("Send", "Listen"):
        rule = ("--eventhub-name", hub, "-n", right, "-o", "json")
        at(node, "eventhub", "authorization-rule", "create", *rule, "--rights", right)
        keys = at(node, "eventhub", "authorization-rule", "keys", "list", *rule).json
        strings[right] = ("--url", node.http, "--connection-string", keys["primaryConnectionString"])

    sent = hubmere("send", hub, "by rule", *strings["Send"])
    seen = hubmere("tail", hub, "-o", "body", *strings["Listen"])
    crossed = [hubmere("tail", hub, *strings["Send"]), hubmere("send", hub, "x", *strings["Listen"])]
    elsewhere = hubmere("send", "orders", "x", *strings["Send"])

    assert (sent.code, seen.lines) == (Exit.OK, ["by rule"])
    assert [run.code for run in crossed] == [Exit.FAILED, Exit.FAILED]
    assert elsewhere.err == f"hubmere: the connection string is for the hub '{hub}', not for 'orders'\n"


def test_error_for_a_wrong_token_does_not_contain_the_token(node: Node) -> None:
    """Error texts are pasted into tickets."""
    run = hubmere("eventhub", "list", "--url", node.http, "--token", "not-the-token")

    assert run.code == Exit.FAILED
    assert "does not allow this" in run.err
    assert "not-the-token" not in run.err


def test_one_of_several_namespaces_must_be_named(node: Node, namespace: str) -> None:
    """A guess could be wrong."""
    run = hubmere("eventhub", "list", "--url", node.http, "--token", node.admin_token)

    assert run.code == Exit.USAGE
    assert namespace in run.err
