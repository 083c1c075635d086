"""Identities of OAuth 2 issuers: which tokens are accepted, whose they are, and which roles their holders have."""
