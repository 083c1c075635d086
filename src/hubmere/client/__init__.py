"""A small blocking client of the Kafka endpoint, for the command line and for Spark: reads ranges, writes once."""
