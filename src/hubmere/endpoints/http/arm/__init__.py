"""Management in the format of Azure Resource Manager."""
