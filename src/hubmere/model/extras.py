"""The command that adds an optional part of the package: the same for a clone, a wheel and a container.

The package is installed already, so pip reads the requirements of the extra from the installed package and fetches
them alone.
"""

import shlex
import sys


def install_command(extra: str) -> str:
    """The command that adds an extra to the Python that runs this."""
    return f"{shlex.quote(sys.executable)} -m pip install 'hubmere[{extra}]'"


def missing_for_spark(package: str) -> str:
    """The error of a Spark job if a package of the extra `spark` is missing."""
    return f"eventhubs needs {package}, which is not installed; install with: {install_command('spark')}"
