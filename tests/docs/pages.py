"""The code blocks of a page, and how they are run."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The program that runs a block of a language; other blocks show terminal sessions or files.
RUNNERS = {"python": [sys.executable, "-c"], "sh": ["bash", "-euo", "pipefail", "-c"]}
# A block waits for clients that take time to start.
_RUN_SECONDS = 3000


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Language and text of the blocks of a page, in their order."""
    found = _FENCE.findall(page.read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if language in languages]


def printed(folder: Path, language: str, text: str) -> str:
    """The output of a block; a failure shows its output."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [*RUNNERS[language], text],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout
