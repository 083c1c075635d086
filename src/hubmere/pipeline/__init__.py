"""Capture and stream jobs on Spark."""
