"""Decides what Capture writes next: windows, their metadata, offsets, and when a hub is checked."""
