"""The connections of a gateway to the brokers of its Kafka cluster."""
