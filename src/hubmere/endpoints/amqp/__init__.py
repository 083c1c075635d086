"""The AMQP 1.0 endpoint: what a connection, its links and its two service nodes do with the broker."""
