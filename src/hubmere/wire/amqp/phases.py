"""The roles and states of an AMQP connection. Values only."""

from __future__ import annotations

from enum import Enum, auto


class Role(Enum):
    """Which end of the connection we are."""

    SERVER = auto()
    CLIENT = auto()


class Phase(Enum):
    """The state of a connection, in the order of its life."""

    HEADER = auto()  # waits for the first header
    SASL = auto()
    AUTHENTICATION = auto()  # credentials were reported; input is not processed
    AMQP_HEADER = auto()  # waits for the header after the SASL layer, or for the peer's answer to ours
    OPEN = auto()  # waits for the peer's open
    OPENED = auto()
    CLOSING = auto()  # we closed; only the peer's close matters
    CLOSED = auto()
