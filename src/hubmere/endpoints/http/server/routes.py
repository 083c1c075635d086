"""Every path of the node but publishing, and who answers it; the first shape that fits a path decides."""

from hubmere.endpoints.http.arm.connections import live_table
from hubmere.endpoints.http.arm.openapi import Surface
from hubmere.endpoints.http.arm.resources import ArmPlane
from hubmere.endpoints.http.atom.resources import AtomPlane
from hubmere.endpoints.http.capture import OWN as CAPTURE
from hubmere.endpoints.http.events import PATH, look_at_events
from hubmere.endpoints.http.health import show_health, show_ready
from hubmere.endpoints.http.metrics import show_metrics
from hubmere.endpoints.http.request import Table

ARM: Table = {**ArmPlane().table(), **live_table()}
ATOM: Table = AtomPlane().table()
OWN: Table = {
    "health": {"GET": show_health},
    "ready": {"GET": show_ready},
    "metrics": {"GET": show_metrics},
    **CAPTURE,
    PATH: {"GET": look_at_events},
}

SURFACE = Surface(arm=ARM, atom=ATOM, own=OWN)

ALL: Table = {"openapi.json": {"GET": SURFACE.show}, **OWN, **ARM, **ATOM}
