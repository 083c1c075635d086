"""Batch messages become records: the events of one AMQP message of the batch format as one record batch.

Most batches hold events with a body and nothing else. Where a C compiler was available, they are split by
`_split.split_plain`, which copies each body once. `kernels.split_batch` splits all others, refuses malformed ones, and
gives the same bytes for plain ones.
"""

from collections.abc import Callable

from hubmere.records import kernels
from hubmere.records.kernels import NULL, PLAIN_ENVELOPE, with_length

_SplitPlain = Callable[[bytes, bytes, bytes], tuple[bytearray, int] | None]


def _find_compiled() -> _SplitPlain | None:
    try:
        from hubmere.records import _split  # type: ignore[attr-defined]
    except ImportError:
        return None
    split_plain: _SplitPlain = _split.split_plain
    return split_plain


split_plain: _SplitPlain | None = _find_compiled()


def split_batch(payload: bytes, key: bytes | None, added: bytes, producers: list[int] | None) -> tuple[bytearray, int]:
    """The events of a batch message as records behind 61 bytes for the header, and their number.

    Arguments and refusals are those of `kernels.split_batch`.
    """
    if split_plain is not None and not added:
        whole = (
            split_plain(payload, NULL, b"\x00")
            if key is None
            else split_plain(payload, with_length(key), PLAIN_ENVELOPE)
        )
        if whole is not None:
            return whole
    return kernels.split_batch(payload, key, added, producers)
