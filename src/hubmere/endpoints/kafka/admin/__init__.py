"""Kafka's metadata and administration: topics, configurations, and requests of tools that inspect a cluster."""
