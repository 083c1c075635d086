"""ARM management of application groups: rates for the clients of one authorization rule (reference: service 4.2)."""

from starlette.responses import Response

from hubmere.endpoints.http.arm import models
from hubmere.endpoints.http.arm.paths import NAMESPACE
from hubmere.endpoints.http.arm.request import ArmRequest, delete_response, json_response, page_response
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.entity import ApplicationGroup
from hubmere.model.names import application_group_name


class ApplicationGroupHandlers:
    """The handlers of application groups."""

    def routes(self) -> Routes:
        """Handlers by path and method."""
        return {
            f"{NAMESPACE}/applicationGroups": {"GET": self.list_application_groups},
            f"{NAMESPACE}/applicationGroups/{{group}}": {
                "PUT": self.put_application_group,
                "GET": self.get_application_group,
                "DELETE": self.delete_application_group,
            },
        }

    async def list_application_groups(self, request: Request) -> Response:
        """The application groups of a namespace."""
        arm = ArmRequest(request)
        groups = arm.entities.application_groups(arm.namespace.name)
        return page_response(request, groups, lambda group: arm.serializer.application_group(arm.namespace, group))

    async def put_application_group(self, request: Request) -> Response:
        """Create or replace an application group."""
        arm = ArmRequest(request)
        body = models.parse_body(models.ApplicationGroupBody, await request.body())
        properties = body.properties
        group = ApplicationGroup(
            namespace=arm.namespace.name,
            name=application_group_name(request.names["group"]),
            client_id=properties.client_app_group_identifier,
            is_enabled=properties.is_enabled is not False,
            policies=body.policies(),
        )
        await await_change(lambda on_done: arm.manager.write_application_group(group, arm.actor, on_done))
        return json_response(arm.serializer.application_group(arm.namespace, group))

    async def get_application_group(self, request: Request) -> Response:
        """One application group."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.application_group(arm.namespace, arm.application_group))

    async def delete_application_group(self, request: Request) -> Response:
        """Delete an application group."""
        arm = ArmRequest(request)
        return await delete_response(
            arm.planned.find_application_group(arm.namespace.name, request.names["group"]),
            lambda group, on_done: arm.manager.delete_application_group(group, arm.actor, on_done),
        )
