"""Files of the manual as readers paste them: the tests run what the pages show.

A block of a page has a title, and values that a reader must replace are examples. `pasted` replaces them by the values
of a test and fails if the page no longer has an example.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from conformance.clients import Jars, kafka_jars
from hubmere.testing import Node

_PAGES = Path(__file__).parents[3] / "docs" / "how-to"
_BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def pasted(page: str, title: str, changes: Mapping[str, str]) -> str:
    """The block with a title, with every example value replaced."""
    text = dict(_BLOCK.findall((_PAGES / page).read_text(encoding="utf-8")))[title]
    for example, real in changes.items():
        assert example in text, f"{page}: {title} does not have {example}"
        text = text.replace(example, real)
    return str(text)


def node_in(node: Node) -> dict[str, str]:
    """The replacements for the address of a node, its CA and its connection string."""
    return {
        "localhost:9093": node.kafkas,
        "/var/lib/hubmere/tls/ca.pem": node.ca_file,
        "CONNECTION_STRING": node.connection_string,
    }


def file_connectors() -> str:
    """The jar with Kafka's connectors for files."""
    (jar,) = kafka_jars(Jars.KAFKA_4).glob("connect-file-*.jar")
    return str(jar)
