"""The XML of Atom management: writes entries and feeds, parses descriptions (reference: service 4.1).

expat parses with limits on depth and size. Document types are refused, so that no entity can expand or load anything.
The elements of a description must be in the order of the service's serializer: an element out of order is ignored, and
gets its default.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from hubmere.endpoints.http.errors import MalformedRequest, xml_text

ATOM = "http://www.w3.org/2005/Atom"
CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
ARRAYS = "http://schemas.microsoft.com/2003/10/Serialization/Arrays"

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"

# An entry with a description and 12 rules is 9 deep and has about 200 elements.
_MAX_DEPTH = 32
_MAX_ELEMENTS = 2_000


@dataclass(slots=True)
class Element:
    """One element: its name without namespace, its text and its children."""

    name: str
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def child(self, name: str) -> "Element | None":
        """The first child of that name."""
        return next((child for child in self.children if child.name == name), None)

    def child_text(self, name: str) -> str | None:
        """The text of a child; None if it is missing or empty."""
        child = self.child(name)
        return (child.text.strip() or None) if child is not None else None

    def find(self, name: str) -> "Element | None":
        """The first element of that name, this one included, depth first."""
        if self.name == name:
            return self
        return next((found for child in self.children if (found := child.find(name)) is not None), None)


def parse(document: bytes) -> Element:
    """The tree of a document."""
    root = Element("")
    open_elements = [root]
    count = 0

    def start(name: str, _attributes: object) -> None:
        nonlocal count
        count += 1
        if len(open_elements) > _MAX_DEPTH or count > _MAX_ELEMENTS:
            raise MalformedRequest("the XML document is too deep or has too many elements")
        element = Element(name.rpartition(" ")[2])
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_name: str) -> None:
        open_elements.pop()

    def text(data: str) -> None:
        open_elements[-1].text += data

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = _no_document_type
    try:
        parser.Parse(document, True)
    except (expat.ExpatError, ValueError, LookupError):
        raise MalformedRequest("the body is not valid XML") from None
    return root


def _no_document_type(*_: object) -> NoReturn:
    raise MalformedRequest("an XML document type is not allowed")


def description_of(document: bytes, kind: str, order: Sequence[str]) -> dict[str, Element]:
    """The elements of a description that are in order; an empty body is an empty description."""
    if not document.strip():
        return {}
    description = parse(document).find(kind)
    if description is None:
        raise MalformedRequest(f"the body has no {kind}")
    accepted: dict[str, Element] = {}
    position = 0
    for child in description.children:
        if child.name in order[position:]:
            accepted[child.name] = child
            position = order.index(child.name) + 1
    return accepted


# --- writing ---------------------------------------------------------------------------------------------------------


def instant(at_ms: int) -> str:
    """A time in the format of the Azure service."""
    return datetime.fromtimestamp(max(at_ms, 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def tag(name: str, text: object) -> str:
    """An element with text."""
    content = xml_text(str(text))
    return f"<{name}>{content}</{name}>" if content else f"<{name}/>"


def description(kind: str, content: str) -> str:
    """A description inside an entry."""
    return f"<{kind} xmlns={quoteattr(CONNECT)} xmlns:i={quoteattr(INSTANCE)}>{content}</{kind}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entity as an Atom entry."""

    url: str
    title: str
    content: str
    author: str
    published_ms: int
    updated_ms: int

    def document(self) -> bytes:
        """The entry as a document."""
        return self._to_xml(f' xmlns="{ATOM}"', self.url).encode()

    def inner(self, base_url: str) -> str:
        """The entry inside a feed: links are relative to the base."""
        return self._to_xml(f" xml:base={quoteattr(base_url)}", self.url.removeprefix(base_url).lstrip("/"))

    def _to_xml(self, attributes: str, link: str) -> str:
        return "".join(
            (
                f"<entry{attributes}>",
                tag("id", self.url),
                f'<title type="text">{xml_text(self.title)}</title>',
                tag("published", instant(self.published_ms)),
                tag("updated", instant(self.updated_ms)),
                f"<author>{tag('name', self.author)}</author>",
                f'<link rel="self" href={quoteattr(link)}/>',
                f'<content type="application/xml">{self.content}</content></entry>',
            )
        )


def feed(title: str, url: str, base_url: str, entries: Iterable[Entry], updated_ms: int, next_url: str | None) -> bytes:
    """A document of several entries."""
    more = f'<link rel="next" href={quoteattr(next_url)}/>' if next_url else ""
    return "".join(
        (
            f'<feed xmlns="{ATOM}"><title type="text">{xml_text(title)}</title>',
            tag("id", url),
            tag("updated", instant(updated_ms)),
            f'<link rel="self" href={quoteattr(url)}/>{more}',
            *(entry.inner(base_url) for entry in entries),
            "</feed>",
        )
    ).encode()
