"""Kafka's metadata and administration: topics, configurations, and what tools inspect."""
