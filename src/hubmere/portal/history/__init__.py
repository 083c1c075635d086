"""History of the node: sampling, recording, lag of consumers, and the charts of all of it."""
