"""What the measurements of AMQP stand on: a raw client that is never the limit, a peer, and the machine's limits."""
