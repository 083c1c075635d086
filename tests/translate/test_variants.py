"""Compiled and interpreted kernels give the same bytes and the same errors, for valid and hostile input."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from random import Random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.records.header import HEADER_BYTES
from translate.builders import batch_of, data
from translate.messages import a_message
from translate.variants import compiled, interpreted

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc")) is None, reason="without a C compiler there is no compiled variant"
)

SEEDS = st.integers(0, (1 << 64) - 1)
MANY = settings(max_examples=400, deadline=None)


@pytest.fixture(scope="module")
def variants() -> tuple[ModuleType, ModuleType]:
    """Interpreted and compiled kernels."""
    return interpreted(), compiled()


def outcome(work: Callable[[ModuleType], object], kernels: ModuleType) -> tuple[str, object]:
    """The result of a call, or the text of `Malformed`; any other exception fails the test."""
    try:
        return "returned", work(kernels)
    except kernels.Malformed as error:
        return "malformed", str(error)


def assert_equal_outcomes(variants: tuple[ModuleType, ModuleType], work: Callable[[ModuleType], object]) -> None:
    """Both kernels return equal values or refuse with equal texts."""
    assert outcome(work, variants[0]) == outcome(work, variants[1])


def with_damage(rng: Random, payload: bytes) -> bytes:
    """A payload with a few bytes changed, removed or inserted."""
    broken = bytearray(payload)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(broken) + 1)
        change = rng.randrange(3)
        if change == 0 and at < len(broken):
            broken[at] = rng.choice((0, 1, 0x53, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif change == 1:
            del broken[at : at + rng.randrange(1, 4)]
        else:
            broken[at:at] = rng.randbytes(rng.randrange(1, 3))
    return bytes(broken)


def split(kernels: ModuleType, payload: bytes, key: bytes | None, added: bytes) -> tuple[bytes, int, list[int]]:
    producers: list[int] = []
    batch, count = kernels.split_batch(payload, key, added, producers)
    return bytes(batch), count, producers


def emit(kernels: ModuleType, records: bytes, count: int) -> list[bytes]:
    encoded, numbers = kernels.encode_messages(
        records, HEADER_BYTES, count, count - 1, 5, 999_990, len(records), 1, False
    )
    return [*encoded, b"%d" % len(numbers)]


@MANY
@given(SEEDS)
def test_publications_are_split_equally(variants: tuple[ModuleType, ModuleType], seed: int) -> None:
    """The input is batches of random messages, valid and damaged, with and without key and annotation."""
    rng = Random(seed)
    sent = [a_message(rng).payload for _ in range(rng.randint(1, 3))]
    payload = with_damage(rng, batch_of(*sent))
    key, added = rng.choice(((None, b""), (b"key", b""), (b"p", b"\xa3\x01p\xa1\x01p")))

    assert_equal_outcomes(variants, lambda kernels: split(kernels, payload, key, added))
    assert_equal_outcomes(variants, lambda kernels: kernels.annotated_key(payload, 0, len(payload), True))
    assert_equal_outcomes(variants, lambda kernels: kernels.annotated_key(payload, 0, len(payload), False))


@MANY
@given(SEEDS)
def test_single_messages_are_joined_equally(variants: tuple[ModuleType, ModuleType], seed: int) -> None:
    """The input is runs of random messages, valid and damaged."""
    rng = Random(seed)
    payloads = [with_damage(rng, rng.choice((data(rng.randbytes(20)), a_message(rng).payload))) for _ in range(3)]

    assert_equal_outcomes(variants, lambda kernels: kernels.join_messages(payloads, None, b""))
    assert_equal_outcomes(variants, lambda kernels: kernels.keyed_messages(payloads))


@MANY
@given(SEEDS)
def test_runs_of_transfers_are_read_equally(variants: tuple[ModuleType, ModuleType], seed: int) -> None:
    """The input is frames with the same constant bytes, valid and damaged."""
    rng = Random(seed)
    head, tag, tail = b"head\x70", b"\xa0\x01", b"tail"
    bodies = [head + rng.randbytes(4) + tag + b"t" + tail + rng.randbytes(rng.randrange(9)) for _ in range(4)]
    frames = with_damage(rng, b"".join((len(body) + 4).to_bytes(4, "big") + body for body in bodies))

    assert_equal_outcomes(
        variants, lambda kernels: kernels.take_transfers(frames, 0, len(frames), head, 4, tag, 1, tail, 64)
    )


@MANY
@given(SEEDS)
def test_runs_of_produce_requests_are_read_equally(variants: tuple[ModuleType, ModuleType], seed: int) -> None:
    """The input is requests with the same constant bytes, valid and damaged, in both forms of the length."""
    rng = Random(seed)
    key, middle, is_flexible = b"\x00\x00\x00\x09", b"client", rng.random() < 0.5
    bodies = []
    for size in (rng.choice((1, 5, 126, 127, 200)) for _ in range(4)):
        length = bytes((size + 1,)) if size < 127 else bytes(((size + 1) & 127 | 128, (size + 1) >> 7))
        batch = (length + rng.randbytes(size) + bytes(3)) if is_flexible else size.to_bytes(4, "big") + bytes(size)
        bodies.append(key + rng.randbytes(4) + middle + rng.randbytes(4) + batch)
    requests = with_damage(rng, b"".join(len(body).to_bytes(4, "big") + body for body in bodies))

    assert_equal_outcomes(
        variants, lambda kernels: kernels.take_requests(requests, 0, key, middle, is_flexible, 220, 3)
    )


@MANY
@given(SEEDS)
def test_records_are_encoded_equally(variants: tuple[ModuleType, ModuleType], seed: int) -> None:
    """The input is stored batches, valid and damaged: envelopes, lengths, counts."""
    rng = Random(seed)
    sent = [rng.choice((data(rng.randbytes(20)), a_message(rng).payload)) for _ in range(rng.randint(1, 4))]
    batch, count = variants[0].split_batch(batch_of(*sent), rng.choice((None, b"key")), b"", None)
    records = bytes(HEADER_BYTES) + with_damage(rng, bytes(batch[HEADER_BYTES:]))
    count += rng.choice((0, 0, 0, -1, 1))

    assert_equal_outcomes(variants, lambda kernels: emit(kernels, records, count))
    assert_equal_outcomes(variants, lambda kernels: kernels.read_records(records, HEADER_BYTES, count))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_have_equal_outcomes(variants: tuple[ModuleType, ModuleType], payload: bytes) -> None:
    """There is no crash, no other exception and no difference."""
    assert_equal_outcomes(variants, lambda kernels: split(kernels, payload, None, b""))
    assert_equal_outcomes(variants, lambda kernels: kernels.first_message(payload))
    assert_equal_outcomes(variants, lambda kernels: kernels.value_end(payload, 0, len(payload), 0))
    assert_equal_outcomes(variants, lambda kernels: emit(kernels, bytes(HEADER_BYTES) + payload, 2))


def test_frames_are_written_equally(variants: tuple[ModuleType, ModuleType]) -> None:
    """They are written with and without delivery annotations."""
    rng = Random(1)
    messages = [a_message(rng).payload for _ in range(50)]
    for added in (b"", b"\x00\x53\x71\xc1\x01\x00"):
        first, second = (
            kernels.frame_messages(messages, 3, 40, 9_000, 600, kernels.frame_template(1, 300), 0xFFFF_FFF0, added)
            for kernels in variants
        )
        assert first == second


def test_every_time_is_formatted_like_the_standard_library(variants: tuple[ModuleType, ModuleType]) -> None:
    """Creation times cover the whole range; outside of it the number is written."""
    from datetime import UTC, datetime, timedelta

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    rng = Random(2)
    times = [rng.randrange(-62_135_596_800_000, 253_402_300_800_000) for _ in range(2_000)]
    for time_ms in [*times, 0, -1, 951_782_400_000, 253_402_300_799_999, -62_135_596_800_000]:
        moment = epoch + timedelta(milliseconds=time_ms)
        expected = f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z".encode()
        assert [kernels.exported_properties._instant(time_ms) for kernels in variants] == [expected, expected]
    assert [kernels.exported_properties._instant(253_402_300_800_000) for kernels in variants] == [
        b"253402300800000"
    ] * 2


def test_compiled_modules_can_be_ignored() -> None:
    """HUBMERE_PURE=1 imports every module from its source."""
    program = (
        "from hubmere.records import validate; import hubmere.records.kernels.frames as frames\n"
        "print(frames.__file__, validate.first_fault is validate.first_fault_interpreted)"
    )

    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"HUBMERE_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    path, is_interpreted = answer.stdout.split()
    assert path.endswith("frames.py")
    assert is_interpreted == "True"
