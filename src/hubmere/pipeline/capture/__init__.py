"""Capture: the events of hubs as files, exactly once, by one Spark application for all captured hubs.

Offsets decide everything: which events a file holds and what it is called stand in Spark's write-ahead log before the
file is written, so that a repeat writes the same file under the same name. `windows` decides, `source` writes aside,
`job` publishes and reports, `verify` proves it against the log.
"""
