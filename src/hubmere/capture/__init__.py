"""The node's side of Capture: starts, watches and restarts the capture job, which is another process."""
