"""What the broker measures and reports: latencies, event-loop lag, problems of the environment, traces."""
