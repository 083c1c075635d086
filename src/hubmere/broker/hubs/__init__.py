"""Run-time state of namespaces, hubs and partitions, and the read-only views of it that leave the broker."""
