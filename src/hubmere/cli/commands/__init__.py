"""The commands of `hubmere` that talk to a running node."""
