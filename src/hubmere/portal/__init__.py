"""What an operator sees and does in a browser: pages over the broker's own surface, loaded when first asked for."""

from hubmere.portal.app import Portal

__all__ = ["Portal"]
