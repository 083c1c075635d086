"""The node's storage account, and that of Azurite."""

from conformance.processors.conftest import azurite

__all__ = ["azurite"]
