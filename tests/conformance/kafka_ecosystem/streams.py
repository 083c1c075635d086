"""The word count of the manual: compiled from the page, run with the page's settings, and killed by tests."""

from collections.abc import Iterable
from pathlib import Path

from conformance.clients import Jars
from conformance.kafka.apache import Program, Service, compile_java
from conformance.kafka_ecosystem.manual import node_in, pasted
from hubmere.testing import Node

PAGE = "kafka-streams.md"
INPUT, OUTPUT = "lines", "words"


def compiled(folder: Path) -> Path:
    """The folder with the classes of the application."""
    source = folder / "WordCount.java"
    source.write_text(pasted(PAGE, source.name, {}), encoding="utf-8")
    return compile_java(Jars.KAFKA_4, source)


class WordCount(Service):
    """One application with the same id and settings over all its starts."""

    def __init__(self, node: Node, classes: Path, folder: Path, *, more: Iterable[str] = ()) -> None:
        self.state = folder / "state"
        text = pasted(PAGE, "word-count.properties", {**node_in(node), "/tmp/word-count": str(self.state)})
        settings = folder / "word-count.properties"
        settings.write_text(text + "\n".join(more) + "\n", encoding="utf-8")
        program = Program(jars=Jars.KAFKA_4, main="WordCount", arguments=(str(settings),), classes=(classes,))
        super().__init__(program, folder / "streams.log")
