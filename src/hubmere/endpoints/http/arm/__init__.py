"""The management plane in the shapes of Azure Resource Manager."""
