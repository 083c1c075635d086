"""Captured files as the older part of a hub: which files hold which events, and their events as rows."""
