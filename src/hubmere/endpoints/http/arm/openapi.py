"""The OpenAPI 3.1 document of the HTTP endpoint, generated from its routes.

Paths, operations and summaries come from the handlers, request bodies from the models that parse them, so the document
cannot name a path that does not exist. Only the statuses, and the parameters of publishing and of browsing events, are
written by hand.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from hubmere import __version__
from hubmere.endpoints.http.arm import models
from hubmere.endpoints.http.arm.capture_models import ProgressBody
from hubmere.endpoints.http.arm.kafka_groups import ResetBody
from hubmere.endpoints.http.capture import PLAN_ROUTE, PROGRESS_ROUTE
from hubmere.endpoints.http.errors import JSON_TYPE
from hubmere.endpoints.http.pairing import replica
from hubmere.endpoints.http.request import Handler, Request, Routes

Json = dict[str, object]

_NAME = re.compile(r"\{(\w+)\*?\}")
_BATCH = "application/vnd.microsoft.servicebus.json"
_ATOM = "application/atom+xml"
_XML = "application/xml"
_JSON = "application/json"
_TEXT = "text/plain"

# Request bodies by handler.
_BODIES: Mapping[str, type[models.ArmModel]] = {
    "check_namespace_name": models.CheckNameBody,
    "check_alias_name": models.CheckNameBody,
    "put_namespace": models.NamespaceBody,
    "patch_namespace": models.NamespaceBody,
    "put_network": models.NetworkBody,
    "put_hub": models.HubBody,
    "put_group": models.GroupBody,
    "put_rule": models.RuleBody,
    "regenerate_keys": models.RegenerateBody,
    "regenerate_storage_key": models.RegenerateStorageKeyBody,
    "put_alias": models.AliasBody,
    "put_application_group": models.ApplicationGroupBody,
    "put_role_assignment": models.RoleAssignmentBody,
    "reset_kafka_group": ResetBody,
    "report_progress": ProgressBody,
    "put_replica": replica.ReplicaBody,
    "put_namespace_copy": replica.NamespaceCopyBody,
    "put_hub_copy": replica.HubCopyBody,
}

# Error statuses: of management, of publishing, and of pages without a credential.
_REFUSALS = (400, 401, 403, 404, 405, 408, 409, 410, 413, 421, 431, 503)
_SEND_REFUSALS = (400, 401, 403, 404, 405, 408, 413, 421, 431, 503, 504)
_OPEN_REFUSALS = (400, 401, 405, 431)
_REASONS: Mapping[int, str] = {
    200: "Done.",
    201: "Created.",
    204: "There was nothing to delete.",
    400: "The request is malformed or asks for an invalid value.",
    401: "The credential is missing, invalid or lacks the right.",
    403: "A quota is reached, or the entity is disabled.",
    404: "The entity does not exist.",
    405: "The path does not support this method.",
    408: "The request did not arrive in time.",
    409: "The name is in use, or the current state does not allow this.",
    410: "The pairing has ended: the alias has failed over.",
    413: "The body is too large.",
    421: "The alias in the host name is served by another node.",
    431: "The headers are too large.",
    503: "The node is busy or the client is throttled; retry after the given seconds.",
    504: "The events were not durable within the client's timeout.",
}

_TEXT_PARAMETER: Json = {"type": "string", "maxLength": 1024}
_COUNT: Json = {"type": "integer", "minimum": 0, "maximum": 999_999_999}


class OpenApiDocument:
    """The document of a set of routes."""

    def __init__(self, *, arm: Routes, atom: Routes, own: Routes) -> None:
        self._arm = arm
        self._atom = atom
        self._own = own

    async def get_openapi(self, _request: Request) -> Response:
        """This document."""
        return Response(self._document, 200, media_type=JSON_TYPE)

    @cached_property
    def _document(self) -> bytes:
        return json.dumps(self.document()).encode()

    def document(self) -> Json:
        """The OpenAPI document."""
        paths: dict[str, Json] = dict(_publishing())
        for pattern, handlers in {**self._own, **self._atom}.items():
            paths[openapi_path(pattern)] = {method.lower(): _operation(pattern, h) for method, h in handlers.items()}
        for pattern, handlers in self._arm.items():
            paths[openapi_path(pattern)] = {
                method.lower(): _arm_operation(pattern, h) for method, h in handlers.items()
            }
        paths["/openapi.json"] = {
            "get": _describe(self.get_openapi, "openapi", _answers((200,), _JSON, _OPEN_REFUSALS))
        }
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "Hubmere",
                "version": __version__,
                "description": "Publishing, the Atom and ARM management planes, and the node's own pages.",
            },
            "paths": paths,
            "components": {
                "securitySchemes": {
                    "sas": {"type": "apiKey", "in": "header", "name": "Authorization"},
                    "admin": {"type": "http", "scheme": "bearer"},
                },
                "schemas": _schemas(),
            },
            "security": [{"sas": []}, {"admin": []}],
        }


def _schemas() -> Json:
    _, definitions = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(_BODIES.values())],
        ref_template="#/components/schemas/{model}",
    )
    schemas: Json = dict(definitions.get("$defs", {}))
    schemas["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
            }
        },
    }
    schemas["Resource"] = {"type": "object"}
    return schemas


def openapi_path(pattern: str) -> str:
    """A path pattern in the form of OpenAPI and the manual."""
    return "/" + _NAME.sub(r"{\1}", pattern)


def _names(pattern: str) -> Iterator[Json]:
    for name in _NAME.findall(pattern):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _describe(handler: Handler, prefix: str, responses: Json) -> Json:
    name = handler.__name__
    summary = (handler.__doc__ or name).strip().splitlines()[0]
    return {"operationId": f"{prefix}_{name}", "summary": summary, "responses": responses}


def _answers(good: tuple[int, ...], media_type: str, bad: tuple[int, ...]) -> Json:
    """Responses by status, with errors in the format of the interface."""
    is_json = media_type in (_JSON, _TEXT)
    error: Json = {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}} if is_json else {_XML: {}}
    answers: Json = {}
    for status in good:
        answers[str(status)] = {"description": _REASONS[status], "content": {media_type: {}}}
    for status in bad:
        # Errors in the HTTP syntax are answered in XML, before the interface is known.
        below: Json = {_XML: {}} if status in (400, 408, 431) else {}
        answers[str(status)] = {"description": _REASONS[status], "content": {**error, **below}}
    return answers


def _operation(pattern: str, handler: Handler) -> Json:
    """An operation of Atom, or one that the Azure service does not have."""
    own = {
        "health": (_JSON, _OPEN_REFUSALS),
        "ready": (_JSON, _OPEN_REFUSALS),
        "metrics": (_TEXT, _OPEN_REFUSALS),
        PLAN_ROUTE: (_JSON, _REFUSALS),
        PROGRESS_ROUTE: (_JSON, _REFUSALS),
    }
    is_browsing = pattern.endswith("/messages")
    media_type, bad = own.get(pattern, (_JSON if is_browsing else _ATOM, _REFUSALS))
    name = handler.__name__
    good = (200, 201) if name in ("put_hub", "put_group") else (201,) if name == "revoke" else (200,)
    responses = _answers(good, _XML if name in ("delete_hub", "delete_group", "restore") else media_type, bad)
    operation = _describe(handler, "own" if pattern in own or is_browsing else "atom", responses)
    parameters = [*_names(pattern)]
    if is_browsing:
        parameters += [_query("from", _TEXT_PARAMETER), _query("limit", _COUNT), _query("wait", {"const": 0})]
    elif pattern not in own:
        parameters.append(_query("api-version", _TEXT_PARAMETER))
    if name.startswith("list_"):
        parameters += [_query("$skip", _COUNT), _query("$top", _COUNT)]
    if parameters:
        operation["parameters"] = parameters
    if name in ("put_hub", "put_group"):
        operation["requestBody"] = {"required": False, "content": {_ATOM: {"schema": {"type": "string"}}}}
    if pattern == PROGRESS_ROUTE:
        operation["requestBody"] = _json_body(name)
        responses["204"] = {"description": "Kept."}
        del responses["200"]
    return operation


def _arm_operation(pattern: str, handler: Handler) -> Json:
    name = handler.__name__
    good = (200, 201) if name in ("put_namespace", "put_alias") else (200,)
    responses = _answers(good, _JSON, _REFUSALS)
    if name.startswith("delete_") or name in ("break_pairing", "fail_over"):
        responses["200"] = {"description": _REASONS[200]}
        responses["204"] = {"description": _REASONS[204]}
    else:
        content: Json = {_JSON: {"schema": {"$ref": "#/components/schemas/Resource"}}}
        responses |= {str(status): {"description": _REASONS[status], "content": content} for status in good}
    prefix = f"arm_{pattern.count('/')}_{'hub' if '{hub}' in pattern else 'alias' if '{alias}' in pattern else 'ns'}"
    operation = _describe(handler, f"{prefix}_{pattern.rpartition('/')[2].strip('{}')}", responses)
    parameters = [*_names(pattern), _query("api-version", _TEXT_PARAMETER)]
    if name.startswith("list_") and name != "list_keys":
        parameters += [_query("$skip", _COUNT), _query("$top", _COUNT)]
    operation["parameters"] = parameters
    if name in _BODIES:
        operation["requestBody"] = _json_body(name)
    return operation


def _json_body(handler: str) -> Json:
    schema = {"$ref": f"#/components/schemas/{_BODIES[handler].__name__}"}
    return {"required": True, "content": {_JSON: {"schema": schema}}}


def _publishing() -> Iterator[tuple[str, Json]]:
    for below, what in (
        ("", "a hub"),
        ("/partitions/{partition}", "one partition of a hub"),
        ("/publishers/{publisher}", "a publisher's path of a hub"),
    ):
        pattern = "{hub}" + below + "/messages"
        responses = _answers((), _XML, _SEND_REFUSALS)
        responses["201"] = {"description": "Stored and durable.", "content": {_XML: {}}}
        yield (
            openapi_path(pattern),
            {
                "post": {
                    "operationId": f"publish_to_{what.replace(' ', '_').replace(chr(39), '')}",
                    "summary": f"Publish an event or a batch to {what}.",
                    "parameters": [*_names(pattern), _query("api-version", _TEXT_PARAMETER), _timeout(), _broker()],
                    "requestBody": {"required": False, "content": _event_bodies()},
                    "responses": responses,
                }
            },
        )


def _timeout() -> Json:
    return _query("timeout", {"type": "integer", "minimum": 1, "maximum": 300})


def _broker() -> Json:
    sentence = "JSON object with PartitionKey, MessageId and the other broker properties of a single event."
    return {
        "name": "BrokerProperties",
        "in": "header",
        "required": False,
        "description": sentence,
        "schema": {"type": "string"},
    }


def _event_bodies() -> Json:
    properties: Json = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
    element: Json = {
        "type": "object",
        "required": ["Body"],
        "properties": {
            "Body": {"type": "string"},
            "UserProperties": properties,
            "UserPropertyTypes": {"type": "object", "additionalProperties": {"type": "string"}},
            "BrokerProperties": {"type": "object", "properties": {"PartitionKey": {"type": "string"}}},
            "IsBodyBase64": {"const": False},
        },
    }
    return {
        "application/octet-stream": {"schema": {"type": "string"}},
        _BATCH: {"schema": {"type": "array", "minItems": 1, "items": element}},
    }
