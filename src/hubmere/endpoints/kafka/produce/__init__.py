"""The Kafka Produce request: handler, runs of equal requests, and answers."""
