"""Refusals of the Blob endpoint, by the error codes of the Azure Blob service."""

from collections.abc import Mapping
from enum import Enum

from hubmere.model.errors import Refusal


class BlobErrorCode(Enum):
    """Error codes of the Blob service, each with the service's text."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text

    CONTAINER_NOT_FOUND = "ContainerNotFound", "The specified container does not exist."
    CONTAINER_ALREADY_EXISTS = "ContainerAlreadyExists", "The specified container already exists."
    BLOB_NOT_FOUND = "BlobNotFound", "The specified blob does not exist."
    BLOB_ALREADY_EXISTS = "BlobAlreadyExists", "The specified blob already exists."
    CONDITION_NOT_MET = (
        "ConditionNotMet",
        "The condition specified using HTTP conditional header(s) is not met.",
    )
    NOT_MODIFIED = (
        "ConditionNotMet",
        "The condition specified using HTTP conditional header(s) is not met. (not modified)",
    )
    INVALID_RESOURCE_NAME = "InvalidResourceName", "The specified resource name contains invalid characters."
    OUT_OF_RANGE_NAME = (
        "OutOfRangeInput",
        "The specified resource name length is not within the permissible limits.",
    )
    INVALID_METADATA = (
        "InvalidMetadata",
        "The metadata specified is invalid. It has characters that are not permitted.",
    )
    METADATA_TOO_LARGE = "MetadataTooLarge", "The size of the specified metadata exceeds the maximum size permitted."
    INVALID_HEADER_VALUE = (
        "InvalidHeaderValue",
        "The value for one of the HTTP headers is not in the correct format.",
    )
    MISSING_REQUIRED_HEADER = (
        "MissingRequiredHeader",
        "An HTTP header that's mandatory for this request is not specified.",
    )
    UNSUPPORTED_HEADER = "UnsupportedHeader", "One of the HTTP headers specified in the request is not supported."
    INVALID_QUERY_PARAMETER_VALUE = (
        "InvalidQueryParameterValue",
        "Value for one of the query parameters specified in the request URI is invalid.",
    )
    UNSUPPORTED_QUERY_PARAMETER = (
        "UnsupportedQueryParameter",
        "One of the query parameters specified in the request URI is not supported.",
    )
    UNSUPPORTED_HTTP_VERB = "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb."
    INVALID_BLOB_TYPE = "InvalidBlobType", "The blob type is invalid for this operation."
    INVALID_BLOCK_ID = "InvalidBlobOrBlock", "The specified blob or block content is invalid."
    INVALID_BLOCK_LIST = "InvalidBlockList", "The specified block list is invalid."
    BLOCK_COUNT_EXCEEDS_LIMIT = (
        "BlockCountExceedsLimit",
        "The committed block count cannot exceed the maximum limit of 50,000 blocks.",
    )
    INVALID_XML = "InvalidXmlDocument", "XML specified is not syntactically valid."
    INVALID_RANGE = "InvalidRange", "The range specified is invalid for the current size of the resource."
    MD5_MISMATCH = (
        "Md5Mismatch",
        "The MD5 value specified in the request did not match with the MD5 value calculated by the server.",
    )
    INVALID_MD5 = (
        "InvalidMd5",
        "The MD5 value specified in the request is invalid. The MD5 value must be 128 bits and base64-encoded.",
    )
    TOO_LARGE = "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit."
    LEASE_ALREADY_PRESENT = "LeaseAlreadyPresent", "There is already a lease present."
    LEASE_BREAKING_ACQUIRE = (
        "LeaseIsBreakingAndCannotBeAcquired",
        "The lease ID matched, but the lease is currently in breaking state and cannot be acquired until it is broken.",
    )
    LEASE_BREAKING_CHANGE = (
        "LeaseIsBreakingAndCannotBeChanged",
        "The lease ID matched, but the lease is currently in breaking state and cannot be changed.",
    )
    LEASE_BROKEN_RENEW = (
        "LeaseIsBrokenAndCannotBeRenewed",
        "The lease ID matched, but the lease has been broken explicitly and cannot be renewed.",
    )
    LEASE_NOT_PRESENT = "LeaseNotPresentWithLeaseOperation", "There is currently no lease on the resource."
    LEASE_MISMATCH = (
        "LeaseIdMismatchWithLeaseOperation",
        "The lease ID specified did not match the lease ID for the resource with the specified lease operation.",
    )
    LEASE_ID_MISSING = (
        "LeaseIdMissing",
        "There is currently a lease on the resource and no lease ID was specified in the request.",
    )
    LEASE_BLOB_MISMATCH = (
        "LeaseIdMismatchWithBlobOperation",
        "The lease ID specified did not match the lease ID for the blob.",
    )
    LEASE_CONTAINER_MISMATCH = (
        "LeaseIdMismatchWithContainerOperation",
        "The lease ID specified did not match the lease ID for the container.",
    )
    LEASE_BLOB_NOT_PRESENT = (
        "LeaseNotPresentWithBlobOperation",
        "There is currently no lease on the blob.",
    )
    LEASE_CONTAINER_NOT_PRESENT = (
        "LeaseNotPresentWithContainerOperation",
        "There is currently no lease on the container.",
    )
    LEASE_LOST = "LeaseLost", "A lease ID was specified, but the lease for the resource has expired."
    AUTHENTICATION_FAILED = (
        "AuthenticationFailed",
        "Server failed to authenticate the request. Make sure the value of the Authorization header is formed "
        "correctly including the signature.",
    )
    NO_AUTHENTICATION = (
        "NoAuthenticationInformation",
        "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.",
    )
    PERMISSION_MISMATCH = (
        "AuthorizationPermissionMismatch",
        "This request is not authorized to perform this operation using this permission.",
    )
    RESOURCE_TYPE_MISMATCH = (
        "AuthorizationResourceTypeMismatch",
        "This request is not authorized to perform this operation using this resource type.",
    )
    SERVICE_MISMATCH = (
        "AuthorizationServiceMismatch",
        "This request is not authorized to perform this operation using this service.",
    )
    PROTOCOL_MISMATCH = (
        "AuthorizationProtocolMismatch",
        "This request is not authorized to perform this operation using this protocol.",
    )
    AUTHORIZATION_FAILURE = "AuthorizationFailure", "This request is not authorized to perform this operation."
    KEYS_NOT_PERMITTED = (
        "KeyBasedAuthenticationNotPermitted",
        "Key based authentication is not permitted on this storage account.",
    )
    SERVER_BUSY = "ServerBusy", "The server is currently unable to receive requests. Please retry your request."
    INTERNAL_ERROR = "InternalError", "The server encountered an internal error. Please retry the request."


class BlobRefused(Refusal):
    """A request to the Blob endpoint was refused; `details` are further elements of the error document."""

    def __init__(self, code: BlobErrorCode, **details: str) -> None:
        super().__init__(code, details)
        self.code = code
        self.details: Mapping[str, str] = details

    def text(self) -> str:
        return self.code.text
