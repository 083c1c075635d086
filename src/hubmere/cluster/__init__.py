"""The store on a Kafka cluster: connections to its brokers, the log engine, the control log and forwarded requests."""
