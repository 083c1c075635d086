"""The command line: flags, exit codes, and errors without a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from hubmere import __version__
from hubmere.cli.exit_codes import MEANINGS, Exit
from hubmere.endpoints import certificates
from hubmere.node.ready import Ready, render_banner, render_line, write_ready_file
from hubmere.settings import SETTINGS
from hubmere.store.secrets import NodeSecrets

KEYS = (
    "pid", "version", "data", "namespace", "connection_string", "emulator_connection_string", "admin_token", "ca_file",
    "amqp", "amqps", "kafka", "kafkas", "http", "https", "portal", "blob_connection_string", "identity",
    "local_http", "local_https",
)  # fmt: skip


def hubmere(*arguments: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """The command as a user runs it, in an environment without settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HUBMERE_")}
    return subprocess.run(
        [sys.executable, "-m", "hubmere", *map(str, arguments)],
        capture_output=True, text=True, timeout=600, check=False, env={**environment, "COLUMNS": "200", **variables},
    )  # fmt: skip


def a_ready(**changes: str | None) -> Ready:
    values: dict[str, object] = {key: f"<{key}>" for key in KEYS}
    return Ready(**{**values, "pid": 42, "identity": None, **changes})  # type: ignore[arg-type]


def test_version_is_printed() -> None:
    """A bug report needs it."""
    run = hubmere("version")

    assert (run.returncode, run.stdout) == (Exit.OK, f"hubmere {__version__}\n")


def test_help_of_up_names_every_setting() -> None:
    """Users only know the flags that the help shows."""
    run = hubmere("up", "--help")

    assert run.returncode == Exit.OK
    assert [setting.flag for setting in SETTINGS if setting.flag not in run.stdout] == []


def test_bad_settings_are_lines_on_standard_error_and_exit_code_2(tmp_path: Path) -> None:
    """All problems are reported, each on its own line, and nothing is started."""
    data = tmp_path / "data"

    run = hubmere("up", "--data", data, "--amqp-port", "many", "--durability", "later", HUBMERE_LOG_FORMAT="xml")

    assert run.returncode == Exit.USAGE
    assert [line.split(":")[1].split()[-1] for line in run.stderr.splitlines()] == [
        "log_format", "amqp_port", "durability",
    ]  # fmt: skip
    assert not data.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--amqp-port", "many"), Exit.USAGE, "bad setting amqp_port"),
        (("--data", __file__), Exit.FAILED, f"cannot use {__file__}"),
        (("--data", __file__, "--log-level", "debug"), Exit.FAILED, "the process ends with an error"),
    ],
)
def test_failed_start_of_a_node_that_logs_json_is_json(arguments: tuple[str, ...], code: Exit, text: str) -> None:
    """Collectors of logs parse every line; a container has only its log to say why it ended."""
    run = hubmere("up", *arguments, HUBMERE_LOG_FORMAT="json")

    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert run.returncode == code
    assert lines[0]["level"] == "error"
    assert lines[0]["message"].startswith(text)
    assert ("exception" in lines[0]) == ("debug" in arguments)


def test_what_python_prints_is_json_too() -> None:
    """Warnings, and errors of threads and of finalizers, reach standard error without the log."""
    program = """
import threading, warnings
from hubmere.node.runtime.logging import configure_logging

class Ends:
    def __del__(self):
        raise ValueError("in a finalizer")

configure_logging("json", "info")
warnings.warn("a warning")
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
Ends()
raise OSError("at the top")
"""

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)

    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert "a warning" in lines[0]["message"]
    assert lines[1]["message"] == "the thread worker ended with an error"
    assert [line["exception"].splitlines()[-1] for line in lines[1:]] == [
        "ZeroDivisionError: division by zero", "ValueError: in a finalizer", "OSError: at the top",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [("up", "--speed", "9"), ("fly",), ("sas",), ("sas", "--rule", "r", "--key", "k")]
)
def test_wrong_usage_ends_with_exit_code_2(arguments: tuple[str, ...]) -> None:
    """Scripts can distinguish a typing error from a failure."""
    run = hubmere(*arguments)

    assert run.returncode == Exit.USAGE
    assert "Traceback" not in run.stderr


def test_command_line_loads_only_what_a_start_needs() -> None:
    """A node is up in less than a second only if the command does not load every library first."""
    program = "import hubmere.cli.main, sys; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    heavy = {
        "rich",
        "cryptography",
        "pydantic",
        "starlette",
        "uvicorn",
        "pyspark",
        "azure",
        "nicegui",
        "sqlite3",
        "ssl",
    }
    assert sorted(heavy & set(loaded)) == []


def test_full_disk_of_the_output_is_reported() -> None:
    """Two plain lines: the disk may be that of the output or that of the node."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "hubmere", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert ended.returncode == Exit.FAILED
    assert ended.stderr.splitlines()[0] == "hubmere: cannot write: No space left on device"


def test_every_exit_code_has_a_meaning() -> None:
    """The reference page is generated from the table."""
    assert set(MEANINGS) == set(Exit)


# --- cert ------------------------------------------------------------------------------------------------------------


def test_cert_prints_the_path_of_the_authority_and_how_to_trust_it(tmp_path: Path) -> None:
    """The first line is the path, for scripts; the rest is for people."""
    from datetime import UTC, datetime

    tls = NodeSecrets(tmp_path).ensure_tls(["localhost"], datetime.now(UTC), certificates)

    run = hubmere("cert", "--ca", "--data", tmp_path)

    lines = run.stdout.splitlines()
    assert lines[0] == str(tls.ca)
    for word in (
        "curl",
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "keytool",
        "NODE_EXTRA_CA_CERTS",
        "update-ca-certificates",
    ):
        assert any(word in line and str(tls.ca) in line for line in lines), word


def test_cert_without_a_node_says_what_to_do(tmp_path: Path) -> None:
    """There is no CA before the first start; the folder comes from the environment, as for `up`."""
    run = hubmere("cert", "--ca", HUBMERE_DATA=str(tmp_path))

    assert run.returncode == Exit.FAILED
    assert str(tmp_path) in run.stderr
    assert len(run.stderr.splitlines()) == 1


# --- sas -------------------------------------------------------------------------------------------------------------


def token_of(run: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    assert run.returncode == Exit.OK, run.stderr
    scheme, _, fields = run.stdout.strip().partition(" ")
    assert scheme == "SharedAccessSignature"
    return {name: values[0] for name, values in parse_qs(fields).items()}


CONNECTION_STRING = (
    "Endpoint=sb://events.example.org/;SharedAccessKeyName=Sender;SharedAccessKey=c2VjcmV0;EntityPath=orders"
)


@pytest.mark.parametrize(
    ("arguments", "scope"),
    [
        (("--connection-string", CONNECTION_STRING), "sb://events.example.org/orders"),
        (("--connection-string", CONNECTION_STRING, "--hub", "clicks"), "sb://events.example.org/clicks"),
        (("--connection-string", CONNECTION_STRING, "--scope", "sb://a/b"), "sb://a/b"),
        (("--rule", "Sender", "--key", "c2VjcmV0", "--scope", "sb://a/b"), "sb://a/b"),
    ],
)
def test_sas_prints_a_token_for_the_scope(arguments: tuple[str, ...], scope: str) -> None:
    """A connection string is enough; single parts can be overridden."""
    token = token_of(hubmere("sas", *arguments))

    assert (token["sr"], token["skn"]) == (scope, "Sender")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--connection-string", "nonsense"),
        ("--connection-string", CONNECTION_STRING, "--hub", "a", "--scope", "sb://b"),
        ("--connection-string", CONNECTION_STRING, "--ttl", "0"),
    ],
)
def test_sas_refuses_invalid_arguments(arguments: tuple[str, ...]) -> None:
    """The error never contains a key."""
    run = hubmere("sas", *arguments)

    assert run.returncode == Exit.USAGE
    assert "c2VjcmV0" not in run.stdout + run.stderr


# --- ready -----------------------------------------------------------------------------------------------------------


def test_ready_file_has_exactly_the_documented_keys(tmp_path: Path) -> None:
    """Other programs read it."""
    path = tmp_path / "ready.json"

    write_ready_file(path, a_ready(kafka=None))

    content = json.loads(path.read_bytes())
    assert tuple(content) == KEYS
    assert content["kafka"] is None
    assert (path.stat().st_mode & 0o777, [entry.name for entry in tmp_path.iterdir()]) == (0o600, ["ready.json"])


def test_banner_is_plain_without_a_terminal() -> None:
    """Logs and pipes must not contain escape codes."""
    banner = render_banner(a_ready(kafkas=None, portal=None), is_terminal=False)

    assert "\x1b" not in banner
    assert "Kafka  <kafka>" in banner
    assert "Portal" not in banner


def test_banner_shows_no_key_without_a_terminal() -> None:
    """A file or a pipe may be read by others: the banner names the file with the keys."""
    ready = a_ready(portal="http://localhost:8080/portal/?token=<secret>")

    banner = render_banner(ready, is_terminal=False, ready_file=Path("data/ready.json"))

    assert "Portal  http://localhost:8080/portal/\n" in banner
    assert "data/ready.json" in banner
    assert not any(secret in banner for secret in ("<secret>", "connection_string>", "<admin_token>"))


def test_banner_without_a_ready_file_says_how_to_get_the_keys() -> None:
    """A node in memory writes a file only on request."""
    assert "--ready-file" in render_banner(a_ready(), is_terminal=False)


def test_banner_on_a_terminal_is_short_and_shows_what_users_paste() -> None:
    """It must fit on the screen together with the first log lines."""
    banner = render_banner(a_ready(), is_terminal=True)

    assert len(banner.splitlines()) <= 16
    assert "<emulator_connection_string>" in banner
    assert "Ctrl-C stops" in banner
    assert "<admin_token>" not in banner


def test_log_line_of_the_start_has_addresses_and_no_key() -> None:
    """Every reader of the log could use the portal's link and the connection string."""
    line = render_line(a_ready(amqps=None))

    places = "AMQP <amqp>, Kafka <kafka>  <kafkas> (TLS), HTTP <http>  <https> (TLS), data <data>"
    assert line == f"Hubmere <version> is ready: {places}"


def test_banner_without_plain_amqp_shows_the_connection_string_for_tls() -> None:
    """The other one would not work."""
    banner = render_banner(a_ready(amqp=None), is_terminal=True)

    assert "<connection_string>" in banner
    assert "<emulator_connection_string>" not in banner


@pytest.mark.parametrize(("amqps", "is_said"), [("localhost:5671", False), ("localhost:38039", True)])
def test_banner_explains_what_the_python_sdk_needs_on_another_port(amqps: str, is_said: bool) -> None:
    """The SDK ignores the port of the connection string, so the user needs an explanation."""
    banner = render_banner(a_ready(amqp=None, amqps=amqps), is_terminal=True)

    assert (f"custom_endpoint_address='sb://{amqps}'" in banner) is is_said


def test_banner_omits_disabled_services() -> None:
    """A line without a value would be confusing."""
    off = dict.fromkeys(("amqp", "amqps", "kafka", "kafkas", "http", "https", "portal", "ca_file"))

    banner = render_banner(a_ready(**off), is_terminal=False)

    assert [line.split()[0] for line in banner.splitlines()[1:]] == ["Data", "Keys"]
