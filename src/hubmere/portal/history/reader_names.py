"""Names of AMQP readers for people.

A client may name its readers (`com.microsoft:receiver-name` in the attach), as the SDKs for .NET and Java do. The SDK
for Python names none; its container ids and link names are random. Such a reader is named after its connection:
software, address, and the number that the page Links shows. Only people who may see connections get these names.
"""

from collections.abc import Iterable

from hubmere.broker import ConnectionView, Reader

# What the service calls a reader that gave no name.
_UNNAMED = "nil"


def reader_label(name: str) -> str:
    """The name that a reader gave itself, for people."""
    return "(no name)" if name == _UNNAMED else name


def quoted_name(name: str) -> str:
    """The name that a reader gave itself, in a sentence."""
    return "a reader without a name" if name == _UNNAMED else f"'{name}'"


def reader_names(connections: Iterable[ConnectionView]) -> dict[Reader, str]:
    """The names of the readers on these connections."""
    return {
        link.reader: _client(connection) if link.reader.name == _UNNAMED else link.reader.name
        for connection in connections
        for link in connection.links
        if link.reader is not None
    }


def _client(connection: ConnectionView) -> str:
    name = product(connection.software) or connection.client or connection.protocol
    return f"{name} at {connection.peer}, connection {connection.number}"


def product(software: str) -> str:
    """The first product of a user agent, which is the application's if it gave one: `billing/2 azsdk-python/5`.

    Kafka clients send a name and a version instead.
    """
    first, *others = software.split() or [""]
    return first if "/" in first else " ".join((first, *others[:1]))
