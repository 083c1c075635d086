"""Geo-disaster recovery between two nodes: the client of a partner, and the handlers that a partner calls."""
