"""How the program ends: each outcome becomes an exit code (`exit_codes`) and one or two lines on standard error.

Only `--log-level debug` shows where something happened. Import-light, because every start passes through here.
"""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.settings import BadSettings


def end_with_code(command: Callable[[], object]) -> NoReturn:
    """Run a command and end the process; every way out has a documented exit code."""
    try:
        command()
    except BadSettings as bad:
        fail(Exit.USAGE, *(f"bad setting {problem}" for problem in bad.problems))
    except CommandFailed as failed:
        fail(failed.code, *failed.lines)
    except Exception as error:  # the top of the program: what nobody caught ends as a line or two
        if _wants_traceback():
            raise
        _fail_with(error)
    sys.exit(Exit.OK)


def fail(code: Exit, *lines: str) -> NoReturn:
    """Say why on standard error, and end."""
    for line in lines:
        print(f"hubmere: {line}", file=sys.stderr)  # noqa: T201 - the last words of a command
    sys.exit(code)


def _fail_with(error: Exception) -> NoReturn:
    from hubmere.broker.provisioning import ProvisioningFailed
    from hubmere.endpoints.http.server.uvicorn_seam import UvicornMismatch
    from hubmere.endpoints.listener import PortInUse
    from hubmere.store.catalog.migrations import CatalogUnusable
    from hubmere.store.files import FolderInUse

    table: dict[type[Exception], Exit] = {
        FolderInUse: Exit.FOLDER_IN_USE,
        PortInUse: Exit.PORT_IN_USE,
        CatalogUnusable: Exit.DAMAGED,
        ProvisioningFailed: Exit.USAGE,
        UvicornMismatch: Exit.FAILED,
    }
    for kind, code in table.items():
        if isinstance(error, kind):
            fail(code, str(error))
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    fail(Exit.FAILED, what, "set HUBMERE_LOG_LEVEL=debug to see where it happened")


def _wants_traceback() -> bool:
    command = " ".join(sys.argv).replace("=", " ")
    return os.environ.get("HUBMERE_LOG_LEVEL") == "debug" or "--log-level debug" in command
