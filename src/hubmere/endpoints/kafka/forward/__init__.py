"""Requests that a gateway passes on to the coordinators and leaders of its Kafka cluster."""
