"""The web portal: pages over the broker's public surface. The page library is loaded when the portal is first used."""

from hubmere.portal.app import Portal

__all__ = ["Portal"]
