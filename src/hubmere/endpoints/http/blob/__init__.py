"""The Blob endpoint: the part of the Azure Blob service that checkpoint stores and event processors use."""
