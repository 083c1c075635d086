"""The control log: a state machine without I/O that every gateway runs over one Kafka partition."""
