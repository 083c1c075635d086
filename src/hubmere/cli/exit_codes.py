"""How a command ends: the exit codes that scripts may rely on, and the code and text of every failure.

A failure prints one or two lines on standard error, or logs them if the log of a node is JSON; only `--log-level debug`
prints a traceback. Import-light, because every start passes through here.
"""

import errno
import logging
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

from hubmere.settings import BadSettings

if TYPE_CHECKING:
    from hubmere.endpoints.listener import PortInUse


class Exit(IntEnum):
    """Exit codes of every `hubmere` command; the documentation prints this table.

    NOT_FOUND is the number that `az` has for it. It is also FOLDER_IN_USE, which only commands have that open a data
    folder themselves; such commands name no resource.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    FOLDER_IN_USE = 3
    NOT_FOUND = 3
    PORT_IN_USE = 4
    DAMAGED = 5
    INTERRUPTED = 130  # 128 and the number of SIGINT, as in every shell


MEANINGS: dict[Exit, str] = {
    Exit.OK: "The command succeeded; a node was stopped by SIGTERM or SIGINT and closed its files.",
    Exit.FAILED: "Something failed while the command ran; standard error says what.",
    Exit.USAGE: "A flag, variable or file is wrong; every bad setting is named, and nothing was started.",
    Exit.NOT_FOUND: (
        "Commands that use a running node: a named resource does not exist, as with `az`; deleting it is no error. "
        "`hubmere up`, `demo`, `cluster demo` and `doctor`: another node uses the data folder; its process id is named."
    ),
    Exit.PORT_IN_USE: "A port cannot be opened: another process uses it, or permission is missing.",
    Exit.DAMAGED: "`hubmere doctor` found damage that is not repaired, or a catalog is missing or damaged.",
    Exit.INTERRUPTED: "Ctrl-C (SIGINT) ended the command before it was complete.",
}


class CommandFailed(Exception):
    """A command failed: the exit code, and the lines to print."""

    def __init__(self, code: Exit, *lines: str) -> None:
        super().__init__(code, *lines)
        self.code = code
        self.lines = lines


def end_with_code(command: Callable[[], object]) -> NoReturn:
    """Run a command and end the process with a documented exit code."""
    try:
        command()
    except BadSettings as bad:
        fail(Exit.USAGE, *(f"bad setting {problem}" for problem in bad.problems))
    except CommandFailed as failed:
        fail(failed.code, *failed.lines)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:  # the top of the program: an unexpected error is printed without a traceback
        if _wants_traceback():
            raise
        _fail_with(error)
    sys.exit(Exit.OK)


def fail(code: Exit, *lines: str) -> NoReturn:
    """Print the reason on standard error, and end the process; a node whose log is JSON logs it."""
    is_logged = _is_logging_json()
    for line in lines:
        if is_logged:
            logging.getLogger("hubmere").error("%s", line)
        else:
            print(f"hubmere: {line}", file=sys.stderr)  # noqa: T201 - the last words of a command
    sys.exit(code)


def _is_logging_json() -> bool:
    """Whether this process is a node that logs JSON; before the settings are known, by flag and environment."""
    if sys.argv[1:2] != ["up"]:
        return False
    from hubmere.node.runtime.logging import configure_logging, is_logging_json

    command = " ".join(sys.argv).replace("=", " ")
    is_wanted = "--log-format json" in command or (
        os.environ.get("HUBMERE_LOG_FORMAT") == "json" and "--log-format" not in command
    )
    if is_wanted and not is_logging_json():
        configure_logging("json", "error")
    return is_logging_json()


def _fail_with(error: Exception) -> NoReturn:
    from hubmere.broker.provisioning import ProvisioningFailed
    from hubmere.endpoints.http.server.uvicorn_internals import UvicornMismatch
    from hubmere.endpoints.listener import PortInUse
    from hubmere.node.cluster import ClusterUnusable
    from hubmere.node.node import MissingExtra
    from hubmere.node.ready import ReadyFileFailed
    from hubmere.store.catalog.migrations import CatalogUnusable
    from hubmere.store.files import FolderInUse

    if isinstance(error, PortInUse):
        fail(Exit.PORT_IN_USE, *_port_lines(error))
    if isinstance(error, OSError) and error.filename is not None:
        fail(Exit.FAILED, *_file_lines(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        fail(Exit.FAILED, f"cannot write: {error.strerror}", "free space where the output goes, or in the data folder")
    table: dict[type[Exception], Exit] = {
        FolderInUse: Exit.FOLDER_IN_USE,
        CatalogUnusable: Exit.DAMAGED,
        MissingExtra: Exit.USAGE,
        ClusterUnusable: Exit.USAGE,
        ProvisioningFailed: Exit.USAGE,
        UvicornMismatch: Exit.FAILED,
        ReadyFileFailed: Exit.FAILED,
    }
    for kind, code in table.items():
        if isinstance(error, kind):
            fail(code, str(error))
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    fail(Exit.FAILED, what, "set HUBMERE_LOG_LEVEL=debug to see where it happened")


def _port_lines(error: "PortInUse") -> tuple[str, str]:
    """The problem with a port, the process that uses it if known, and the flag that solves it."""
    from hubmere.cli.port_owner import port_owner

    if error.is_bad_host:
        return str(error), "choose an address of this machine by --host; 0.0.0.0 is every IPv4 address"
    owner = port_owner(error.port) if error.is_taken else None
    used = f", used by {owner}" if owner else ""
    flag = f"--{error.service}-port"
    return (
        f"{error}{used}",
        f"choose another port by {flag} (0: any free one), or end the process that uses {error.port}",
    )


def _file_lines(error: OSError) -> tuple[str, str]:
    """The failed operation on a file, and the setting that selects the folder."""
    reason = error.strerror or type(error).__name__
    return f"cannot use {error.filename}: {reason}", "choose a folder that this user can write to by --data"


def _wants_traceback() -> bool:
    command = " ".join(sys.argv).replace("=", " ")
    return os.environ.get("HUBMERE_LOG_LEVEL") == "debug" or "--log-level debug" in command
