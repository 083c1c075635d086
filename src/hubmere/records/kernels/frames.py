"""Encoded messages become AMQP transfer frames."""

from struct import Struct
from typing import Final

# From the delivery-tag to the payload: an empty tag, message-format 0, settled, more false, four nulls, batchable
# (AMQP 1.0, 2.7.5).
_TRANSFER_TAIL: Final = b"\xa0\x00\x43\x41\x42\x40\x40\x40\x40\x41"


def frame_template(channel: int, handle: int) -> tuple[Struct, bytes]:
    """The common part of the transfers of one link: their layout, and the bytes before the delivery-id.

    Every field of the transfer is written, the nulls too. Deliveries are settled and have an empty tag.
    """
    handle_part = bytes((0x52, handle)) if handle < 256 else b"\x70" + handle.to_bytes(4, "big")
    size = len(handle_part) + 16
    lead = bytes((2, 0, channel >> 8, channel & 0xFF, 0, 0x53, 0x14, 0xC0, size, 11)) + handle_part + b"\x70"
    return Struct(f">I{len(lead)}sI{len(_TRANSFER_TAIL)}s"), lead


def frame_messages(
    messages: list[bytes],
    first: int,
    limit: int,
    room_bytes: int,
    max_frame_size: int,
    template: tuple[Struct, bytes],
    delivery_id: int,
    annotations: bytes,
) -> tuple[list[bytes], int, int]:
    """Messages as whole single-frame transfers: the pieces to join, how many, and the bytes that they fill.

    Stops at `limit` frames, before the frame that would overfill `room_bytes`, and before a message that needs more
    than one frame. `annotations` is a section of delivery annotations to begin each message with, or empty.
    """
    layout, lead = template
    pack = layout.pack
    extra = layout.size + len(annotations)
    frames: list[bytes] = []
    filled = 0
    count = 0
    for message in messages[first : first + limit]:
        size = extra + len(message)
        filled += size
        if size > max_frame_size or filled > room_bytes:
            filled -= size
            break
        frames.append(pack(size, lead, (delivery_id + count) & 0xFFFF_FFFF, _TRANSFER_TAIL))
        count += 1
        if annotations:
            frames.append(annotations)
        frames.append(message)
    return frames, count, filled
