"""Capture and stream jobs on Spark: the data source `eventhubs`, its sink, and their common parts."""
