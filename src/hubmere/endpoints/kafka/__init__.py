"""The Kafka endpoint: requests become broker calls, refusals become error codes."""
