"""The sans-IO AMQP 1.0 engine: both roles, no socket, no clock. Other packages use the names below.

Performatives, signals and the classes of AMQP values are used from their modules: `performatives`, `signals`, `types`,
`message`.
"""

from hubmere.wire.amqp.codec.decode import decode_value, skip_value
from hubmere.wire.amqp.codec.encode import array_of, encode_value
from hubmere.wire.amqp.connection import Connection
from hubmere.wire.amqp.errors import Condition, FrameTooLarge, LocalProtocolError, RemoteProtocolError
from hubmere.wire.amqp.link import Link, LinkState
from hubmere.wire.amqp.options import EngineOptions
from hubmere.wire.amqp.phases import Phase, Role
from hubmere.wire.amqp.sasl import ClientCredentials
from hubmere.wire.amqp.session import Session, SessionState

__all__ = [
    "Connection",
    "EngineOptions",
    "Role",
    "Phase",
    "Session",
    "SessionState",
    "Link",
    "LinkState",
    "ClientCredentials",
    "Condition",
    "LocalProtocolError",
    "FrameTooLarge",
    "RemoteProtocolError",
    "decode_value",
    "skip_value",
    "encode_value",
    "array_of",
]
