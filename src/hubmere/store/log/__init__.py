"""One partition's log: segments, indexes, the group commit, producers, retention and compaction."""
