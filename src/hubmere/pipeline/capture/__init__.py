"""Capture: the events of hubs as files, exactly once, by one Spark application for all captured hubs.

Offsets decide everything: the events and the name of a file are in Spark's write-ahead log before the file is written,
so a repeated micro-batch writes the same file under the same name. `windows` decides, `source` stages files, `job`
publishes and reports, `verify` compares the files with the log.
"""
