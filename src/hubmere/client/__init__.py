"""A small blocking client for the command line and for Spark."""
