"""What makes a log whole after a crash: checkpoints, the walk over segments, and the ranges that are damaged."""
