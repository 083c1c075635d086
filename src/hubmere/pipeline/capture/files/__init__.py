"""Captured files: their names, their schema, and how events are written to Avro and Parquet."""
