"""The pulse: a topic kept for minutes, in which gateways report traffic and demand for shares and status."""
