"""The segments of a log on disk: files of batches with their indexes, and the list of them."""
