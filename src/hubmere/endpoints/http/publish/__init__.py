"""Publishing events over HTTPS."""
