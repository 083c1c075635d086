"""The Kafka dialect: requests become broker calls, refusals become codes."""
