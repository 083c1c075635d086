"""DescribeAcls (29): access control lists."""

from hubmere.wire.kafka.schema import INT8, INT16, INT32, STRING, api, array, struct, wire

# The pattern type "literal": exactly this name.
LITERAL_PATTERN = 3


@struct
class DescribeAclsRequest:
    """Filters of the lists; null matches everything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable=True)
    pattern_type_filter: int = wire(INT8, since=1, default=LITERAL_PATTERN)
    principal_filter: str | None = wire(STRING, nullable=True)
    host_filter: str | None = wire(STRING, nullable=True)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class AclDescription:
    """One entry: principal, host, operation, and whether it is allowed."""

    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class AclResource:
    """The list of one resource."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, since=1, default=LITERAL_PATTERN)
    acls: tuple[AclDescription, ...] = wire(array(AclDescription))


@struct
class DescribeAclsResponse:
    """The lists, or why there are none."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    resources: tuple[AclResource, ...] = wire(array(AclResource))


DESCRIBE_ACLS = api(29, DescribeAclsRequest, DescribeAclsResponse, versions=(0, 3), flexible_since=2)

APIS = (DESCRIBE_ACLS,)
