"""Capture as all packages see it: targets and destinations, captured files, and reads of them through the node."""
