"""Free TCP ports for programs that cannot say which port they got, such as Kafka's brokers.

A port that the system chooses lies in the range that it gives to every other program, too: until a slow program listens
on it, it may be taken. So these ports are chosen by chance outside of that range.
"""

import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import Final

# Where Linux says which ports it chooses itself, and the range that is always outside of it by default.
_CHOSEN_BY_THE_SYSTEM: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _LAST = 12_000, 32_000
_MIN_RANGE: Final = 1_000
_TRIES: Final = 1_000
_CHANCE: Final = SystemRandom()


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now."""
    first, last = _range()
    with ExitStack() as stack:
        found: list[int] = []
        for _ in range(_TRIES):
            if len(found) == count:
                break
            port = _CHANCE.randrange(first, last)
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            found.append(port)
    if len(found) < count:
        raise OSError(f"{count} free ports were not found between {first} and {last}")
    return found


def is_free(port: int) -> bool:
    """Whether nothing listens on a port of loopback."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _range() -> tuple[int, int]:
    """The first port, and the one after the last, of a range from which the system chooses none itself."""
    try:
        chosen = int(_CHOSEN_BY_THE_SYSTEM.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return _FIRST, _LAST
    return _FIRST, min(max(chosen, _FIRST + _MIN_RANGE), _LAST)
