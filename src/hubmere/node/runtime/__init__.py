"""The process of a node: event loop, memory, garbage collection, clocks, disks and log lines."""
