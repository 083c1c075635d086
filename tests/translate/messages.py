"""Random AMQP messages: every section, every constructor, sections in any order that a client might choose.

A message grows from a seed rather than from hypothesis draws, which makes thousands of them affordable; hypothesis
chooses the seeds, so that a failing one is found again and printed.
"""

from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from translate.builders import compound, section, sized, symbol, text

_WIDTHS = {
    0: (0x40, 0x41, 0x42, 0x43, 0x44, 0x45),
    1: (0x50, 0x51, 0x52, 0x53, 0x54, 0x55),
    2: (0x60, 0x61),
    4: (0x70, 0x71, 0x72, 0x74),
    8: (0x80, 0x81, 0x82, 0x83, 0x84),
    16: (0x94, 0x98),
}
_LETTERS = "abcxyz:-_ /äß€\u4e2d\U0001f600"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its publisher wrote it, and the encoded parts that a reader must get back."""

    payload: bytes
    header: bytes | None
    annotations: list[tuple[bytes, bytes]]
    properties: bytes | None
    application: list[tuple[bytes, bytes]] | None
    body: list[bytes]
    footer: bytes | None
    trailing: bytes | None


def _blob(rng: Random, most: int = 20) -> bytes:
    return rng.randbytes(
        rng.choice((0, 1, rng.randrange(most), 63, 64, 255, 256, 300) if most > 20 else (0, rng.randrange(most)))
    )


def _words(rng: Random) -> str:
    return "".join(rng.choices(_LETTERS, k=rng.randrange(12)))


def _fixed(rng: Random) -> bytes:
    width = rng.choice(tuple(_WIDTHS))
    return bytes((rng.choice(_WIDTHS[width]),)) + rng.randbytes(width)


def _wide(rng: Random) -> bytes:
    content = _words(rng).encode()
    return bytes((rng.choice((0xB0, 0xB1)),)) + len(content).to_bytes(4, "big") + content


def simple_value(rng: Random) -> bytes:
    """An encoded value that is not compound."""
    return rng.choice(
        (
            _fixed,
            _fixed,
            lambda r: sized(0xA0, _blob(r, 300)),
            lambda r: text(_words(r)),
            lambda r: symbol("com.x:y"),
            _wide,
        )
    )(rng)


def _array(rng: Random) -> bytes:
    contents = [_blob(rng) for _ in range(rng.randrange(4))]
    body = b"\xa0" + b"".join(bytes((len(content),)) + content for content in contents)
    return bytes((0xE0, len(body) + 1, len(contents))) + body


def value(rng: Random, depth: int = 0) -> bytes:
    """An encoded value of any shape, nested a little."""
    shape = rng.randrange(8) if depth < 3 else 7
    if shape == 0:
        return compound(0xC0, [value(rng, depth + 1) for _ in range(rng.randrange(4))], wide=rng.random() < 0.3)
    if shape == 1:
        return compound(0xC1, [value(rng, depth + 1) for _ in range(rng.randrange(3) * 2)], wide=rng.random() < 0.3)
    if shape == 2:
        return b"\x00" + rng.choice((symbol("com.microsoft:uri"), b"\x53\x99")) + value(rng, depth + 1)
    return _array(rng) if shape == 3 else simple_value(rng)


def _list(rng: Random) -> bytes:
    if rng.random() < 0.3:
        return b"\x45"
    return compound(0xC0, [simple_value(rng) for _ in range(rng.randrange(5))], wide=rng.random() < 0.3)


def _property_list(rng: Random) -> bytes:
    if rng.random() < 0.2:
        return b"\x45"
    identity = (
        text(_words(rng)),
        sized(0xA0, _blob(rng)),
        b"\x98" + rng.randbytes(16),
        b"\x80" + rng.randbytes(8),
        b"\x44",
    )
    word, moment = text(_words(rng)), b"\x83" + rng.randbytes(8)
    user = sized(0xA0, rng.choice((_blob(rng), _words(rng).encode())))
    media = symbol("application/json")
    fields = (
        rng.choice(identity),
        user,
        word,
        word,
        word,
        rng.choice(identity),
        media,
        media,
        moment,
        moment,
        word,
        b"\x43",
        word,
    )
    chosen = [part if rng.random() < 0.5 else b"\x40" for part in fields[: rng.randint(1, len(fields))]]
    return compound(0xC0, chosen, wide=rng.random() < 0.3)


def _body(rng: Random) -> list[bytes]:
    kind = rng.randrange(7)
    if kind < 2:
        return [section(0x75, sized(0xA0, _blob(rng, 300)))]
    if kind == 6:
        return [section(0x75, b"\x40")]
    if kind == 2:
        return [section(0x75, sized(0xA0, _blob(rng, 300))) for _ in range(rng.randint(2, 4))]
    if kind == 3:
        return [section(0x76, _list(rng)) for _ in range(rng.randint(1, 3))]
    return [section(0x77, value(rng))] if kind == 4 else []


def a_message(rng: Random) -> Sent:
    """One message with at least one section."""
    header = _list(rng) if rng.random() < 0.4 else None
    names = (
        symbol("x-" + _words(rng).encode("ascii", "ignore").decode()),
        bytes((0x53, rng.randrange(256))),
        symbol("iothub-id"),
    )
    kept = [(rng.choice(names), value(rng)) for _ in range(rng.choice((0, 0, 1, 3)))]
    properties = _property_list(rng) if rng.random() < 0.5 else None
    application = None
    if rng.random() < 0.6:
        application = [(text(_words(rng)), value(rng)) for _ in range(rng.choice((0, 1, 3, 8)))]
    body = _body(rng)
    footer = compound(0xC1, [value(rng) for _ in range(2)]) if rng.random() < 0.2 else None
    sections = [
        section(code, part) for code, part in ((0x70, header), (0x73, properties), (0x78, footer)) if part is not None
    ]
    for code, entries in ((0x72, kept or None), (0x74, application)):
        if entries is not None:
            encoded = compound(0xC1, [part for pair in entries for part in pair], wide=rng.random() < 0.3)
            sections.append(section(code, encoded))
    hop = section(0x71, compound(0xC1, [symbol("hop"), b"\x41"]))
    if rng.random() < 0.2:
        sections.append(hop)
    if not kept and rng.random() < 0.2:
        sections.append(section(0x72, b"\xc1\x01\x00"))
    sections.append(b"".join(body))
    if rng.random() < 0.3:
        rng.shuffle(sections)
    is_trailing = bool(body) and hop in sections and sections.index(hop) > sections.index(b"".join(body))
    payload = b"".join(sections)
    if not payload:
        body = [section(0x75, b"\xa0\x00")]
    trailing = hop if is_trailing else None
    return Sent(payload or body[0], header, kept, properties, application, body, footer, trailing)


def messages() -> st.SearchStrategy[Sent]:
    """Messages from seeds."""
    return st.integers(0, (1 << 64) - 1).map(lambda seed: a_message(Random(seed)))
