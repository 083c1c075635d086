"""The node's own OAuth issuer for development and tests: it signs tokens of identities that the settings declare."""
