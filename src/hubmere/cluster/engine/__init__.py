"""The log engine on a Kafka cluster: closed batches in and out, never opened."""
