"""Cold reads: a partition's log together with the captured files that hold its older events."""
