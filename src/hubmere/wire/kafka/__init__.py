"""The Kafka protocol without I/O: messages, record batches, and an engine for each end of a connection."""
