"""Telemetry of devices: from a hub to Delta tables, and minute by minute to another hub."""
