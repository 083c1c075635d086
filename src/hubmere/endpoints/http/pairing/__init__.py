"""Geo-disaster recovery between two nodes: the client of a partner, and the paths that a partner calls."""
