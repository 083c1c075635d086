"""The command `hubmere`: where it starts, its exit codes, and its commands."""
