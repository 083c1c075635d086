"""The routes of all paths except publishing; the first route that matches a path is used."""

from hubmere.endpoints.http.arm.aliases import AliasHandlers
from hubmere.endpoints.http.arm.application_groups import ApplicationGroupHandlers
from hubmere.endpoints.http.arm.kafka_groups import KafkaGroupHandlers
from hubmere.endpoints.http.arm.monitoring import monitoring_routes
from hubmere.endpoints.http.arm.openapi import OpenApiDocument
from hubmere.endpoints.http.arm.processors import processor_routes
from hubmere.endpoints.http.arm.resources import ArmHandlers
from hubmere.endpoints.http.arm.roles import RoleHandlers
from hubmere.endpoints.http.arm.storage import storage_routes
from hubmere.endpoints.http.atom.resources import AtomHandlers
from hubmere.endpoints.http.browse_events import PATH, browse_events
from hubmere.endpoints.http.capture import OWN as CAPTURE
from hubmere.endpoints.http.health import get_health, get_ready
from hubmere.endpoints.http.metrics import get_metrics
from hubmere.endpoints.http.request import Routes

ARM: Routes = {
    **ArmHandlers().routes(),
    **AliasHandlers().routes(),
    **ApplicationGroupHandlers().routes(),
    **RoleHandlers().routes(),
    **KafkaGroupHandlers().routes(),
    **processor_routes(),
    **storage_routes(),
    **monitoring_routes(),
}
ATOM: Routes = AtomHandlers().routes()
OWN: Routes = {
    "health": {"GET": get_health},
    "ready": {"GET": get_ready},
    "metrics": {"GET": get_metrics},
    **CAPTURE,
    PATH: {"GET": browse_events},
}

SURFACE = OpenApiDocument(arm=ARM, atom=ATOM, own=OWN)

ALL: Routes = {"openapi.json": {"GET": SURFACE.get_openapi}, **OWN, **ARM, **ATOM}
