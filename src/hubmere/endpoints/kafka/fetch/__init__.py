"""The Kafka Fetch request: handler, fetch sessions, partition state, and answers."""
