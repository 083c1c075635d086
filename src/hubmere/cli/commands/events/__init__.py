"""Commands that publish and read events: `send` and `tail`."""
