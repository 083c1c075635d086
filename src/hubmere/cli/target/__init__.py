"""Which node a command uses: profiles, credentials, and requests to it."""
