"""Common parts of the AMQP benchmarks: a raw client that is never the limit, other brokers, limits of the machine."""
