"""Small blocking clients for the command line and for Spark: Kafka (reads ranges, writes once) and AMQP (one event at a
time)."""
