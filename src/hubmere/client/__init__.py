"""Small blocking clients for the command line, the demo and Spark: Kafka (reads ranges, writes once), AMQP (one event
at a time) and HTTP."""
