"""`status`, `portal`, `profile` and `--version`: the state of a node, a link to its portal, and names for nodes."""

import json
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from commands.runner import Run, at, environment, hubmere
from hubmere import __version__
from hubmere.cli.commands.status import size_text
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node


def test_command_runs_with_closed_streams(node: Node) -> None:
    """Some schedulers start commands without standard output; the exit code is the result then."""
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]

    command = [sys.executable, "-m", "hubmere", "eventhub", "list", "--data", str(node.data)]
    run = subprocess.run([*shell, *command], env=environment(), check=False, timeout=120)

    assert run.returncode == Exit.OK


def test_version_is_available_as_an_option() -> None:
    """Users expect `--version` of every program."""
    assert hubmere("--version").out == f"hubmere {__version__}\n"


# --- status ---


def test_status_shows_state_addresses_and_traffic(node: Node, hub: str) -> None:
    """It has what a bug report needs, as text or as one object."""
    assert at(node, "send", hub, "x", "--count", "7").code == Exit.OK

    result = at(node, "status").json
    page = at(node, "status", "-o", "table").lines
    one = at(node, "status", "--query", "version", "-o", "tsv").out

    assert (result["status"], result["version"], result["pid"]) == ("ready", __version__, node.pid)
    assert (result["amqp"], result["data"]) == (node.amqp, str(node.data))
    assert result["eventsPublished"] >= 7
    assert result["storedBytes"] > 0
    assert result["diskFreeBytes"] <= result["diskTotalBytes"]
    assert result["residentMemoryBytes"] > 10 * 1024 * 1024
    assert page[0].split() == ["status", "●", "ready"]
    assert one == f"{__version__}\n"


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**30, "5.0 GiB")])
def test_sizes_have_binary_units(count: int, text: str) -> None:
    """KiB is 1024 bytes."""
    assert size_text(count) == text


# --- portal ---


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def opened(link: str) -> int:
    """The status of a link: 303 signs in."""
    try:
        with urllib.request.build_opener(_NoRedirect).open(link, timeout=600) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_portal_link_signs_in_once_and_invalidates_the_previous_one(node: Node) -> None:
    """The link that was printed at the start is often lost."""
    first = at(node, "portal").out.strip()
    second = at(node, "portal").out.strip()

    assert first.startswith(f"{node.http}/portal/?token=")
    assert [opened(link) for link in (first, second, second)] == [401, 303, 401]


def test_portal_link_needs_the_administrators_token(node: Node) -> None:
    """A user with a connection string signs in on the sign-in page."""
    by_rule = hubmere("portal", "--url", node.http, "--connection-string", node.connection_string)
    wrong = hubmere("portal", "--url", node.http, "--token", "wrong")

    for run in (by_rule, wrong):
        assert (run.code, run.out) == (Exit.FAILED, "")
        assert run.err.startswith("hubmere: a sign-in link needs the administrator's token\n")


# --- profiles ---


def with_profiles(folder: Path, *arguments: str, **variables: str) -> Run:
    return hubmere(*arguments, XDG_CONFIG_HOME=str(folder), **variables)


def test_profile_names_a_node_and_can_be_the_default(node: Node, tmp_path: Path) -> None:
    """It is named by flag or variable, or used if a command names no node; other variables override the default."""
    add = with_profiles(tmp_path, "profile", "add", "test", "--url", node.http, "--token", node.admin_token)
    by_flag = with_profiles(tmp_path, "namespace", "list", "--profile", "test", "--query", "[].name")
    by_variable = with_profiles(tmp_path, "namespace", "list", HUBMERE_PROFILE="test", HUBMERE_DATA="nowhere")
    unused = with_profiles(tmp_path, "namespace", "list", HUBMERE_DATA=str(tmp_path))
    assert with_profiles(tmp_path, "profile", "use", "test").code == Exit.OK
    in_use = with_profiles(tmp_path, "namespace", "list")
    over = with_profiles(tmp_path, "namespace", "list", HUBMERE_DATA=str(tmp_path))

    assert add.code == Exit.OK
    assert node.namespace in by_flag.json
    assert [run.code for run in (by_variable, unused, in_use, over)] == [Exit.OK, Exit.FAILED, Exit.OK, Exit.FAILED]


def test_profiles_are_listed_without_secrets_in_a_private_file(tmp_path: Path) -> None:
    """The file holds tokens."""
    secret = "Endpoint=sb://a.b/;SharedAccessKeyName=r;SharedAccessKey=c2VjcmV0"
    with_profiles(tmp_path, "profile", "add", "one", "--url", "http://one:5300", "--token", "hush", "--use")
    with_profiles(tmp_path, "profile", "add", "two", "--connection-string", secret)
    with_profiles(tmp_path, "profile", "add", "three", "--data", str(tmp_path / "data"))

    listed = with_profiles(tmp_path, "profile", "list").out
    removed = with_profiles(tmp_path, "profile", "remove", "one")

    assert json.loads(listed) == [
        {"inUse": True, "name": "one", "node": "http://one:5300"},
        {"inUse": False, "name": "three", "node": str(tmp_path / "data")},
        {"inUse": False, "name": "two", "node": "by connection string"},
    ]
    path = tmp_path / "hubmere" / "profiles.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert removed.code == Exit.OK
    assert json.loads(path.read_text())["used"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("profile", "add", "x"), "name a node: --url with --token, --connection-string, or --data"),
        (("profile", "add", "x", "--url", "http://a"), "--url needs --token or HUBMERE_TOKEN"),
        (("profile", "add", "x", "--connection-string", "nonsense"), ""),
        (("profile", "add", "x", "--data", "y", "--token", "t"), "--token needs the address of its node: --url"),
        (("profile", "add", "", "--data", "y"), "NAME is empty; expected a name"),
        (("profile", "use", "x"), "there is no profile 'x'; there are: none; `hubmere profile add` creates one"),
        (("profile", "use"), "give the name of a profile, or --none"),
        (("eventhub", "list", "--profile", "x"), "there is no profile 'x'"),
        (("eventhub", "list", "--profile", "x", "--data", "y"), "give either --profile or --data, --url"),
    ],
)
def test_profile_that_cannot_be_used_is_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    """It is refused before anything is written."""
    run = with_profiles(tmp_path, *arguments)

    assert run.code == Exit.USAGE
    assert run.err.startswith(f"hubmere: {message}")
    assert not (tmp_path / "hubmere").exists()


def test_invalid_file_of_profiles_is_reported_with_its_path(tmp_path: Path) -> None:
    """A user who edited it needs its path."""
    path = tmp_path / "hubmere" / "profiles.json"
    path.parent.mkdir()
    path.write_text('{"profiles": {"x": {"speed": 9}}}')

    run = with_profiles(tmp_path, "profile", "list")

    assert run.code == Exit.USAGE
    assert run.err.startswith(f"hubmere: {path} is not a valid file of profiles: ")
