"""Cold reads: captured Avro files in folders of this machine as record batches, read on threads of their own."""
