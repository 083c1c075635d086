"""Pages about the consumers of a hub: Kafka groups, AMQP groups, and event processors."""
