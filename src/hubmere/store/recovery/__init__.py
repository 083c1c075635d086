"""Recovery of a log: recovery points, the scan on opening, metadata files, damaged ranges."""
