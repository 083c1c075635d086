"""The word count of the manual: compiled from the page, run with the page's settings, and killed if a test says so."""

import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from conformance.clients import Jars
from conformance.kafka.apache import Program, compile_java, started
from conformance.kafka_ecosystem.manual import node_in, pasted
from hubmere.testing import Node

PAGE = "kafka-streams.md"
INPUT, OUTPUT = "lines", "words"


def compiled(folder: Path) -> Path:
    """The folder with the classes of the application."""
    source = folder / "WordCount.java"
    source.write_text(pasted(PAGE, source.name, {}), encoding="utf-8")
    return compile_java(Jars.KAFKA_4, source)


class WordCount:
    """One application: the same identity and settings over all its starts."""

    def __init__(self, node: Node, classes: Path, folder: Path, *, more: Iterable[str] = ()) -> None:
        self.state = folder / "state"
        self._log = folder / "streams.log"
        self._classes = classes
        text = pasted(PAGE, "word-count.properties", {**node_in(node), "/tmp/word-count": str(self.state)})
        self._settings = folder / "word-count.properties"
        self._settings.write_text(text + "\n".join(more) + "\n", encoding="utf-8")
        self._running = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, without waiting for anything."""
        program = Program(
            jars=Jars.KAFKA_4, main="WordCount", arguments=(str(self._settings),), classes=(self._classes,)
        )
        self._process = self._running.enter_context(started(program, self._log))

    def stop(self) -> None:
        """Let the application end in good order."""
        self._running.close()

    def kill(self) -> None:
        """End the application at once, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._running.close()
