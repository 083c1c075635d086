"""Kafka's coordinators: classic and consumer groups, committed offsets, producer ids and transactions."""
