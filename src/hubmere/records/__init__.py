"""The format of record batches: header, records, compression and validation."""
