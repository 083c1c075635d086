"""Common parts of the benchmarks: fast clients in C, other brokers, and limits of the machine."""
