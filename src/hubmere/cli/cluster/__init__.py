"""A cluster to try out: local Kafka brokers, gateways, and one address in front of them."""
