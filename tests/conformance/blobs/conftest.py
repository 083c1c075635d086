"""The node's storage account, and Azurite's beside it."""

from conformance.processors.conftest import azurite

__all__ = ["azurite"]
