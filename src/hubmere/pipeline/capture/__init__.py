"""Capture: the events of hubs as files, exactly once, by one Spark application for all captured hubs.

Offsets decide everything: the events and the name of a file are in the write-ahead log of its hub before the file is
written, so a repeated micro-batch writes the same file under the same name. `planner` decides by `windows`, `tasks` run
`writing` on Spark, `hub` does the steps of a micro-batch, `job` follows the node, `verify` compares files and log.
"""
