"""Connection strings, SAS tokens, rights, roles, and signing in at an identity provider."""
