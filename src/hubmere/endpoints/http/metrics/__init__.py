"""The metrics of a node: what each means, how values are collected, and the two text formats."""

from hubmere.endpoints.http.metrics.collect import METRICS, NAMESPACE_ONLY, get_metrics
from hubmere.endpoints.http.metrics.exposition import OPENMETRICS_TYPE, TEXT_TYPE

__all__ = ["METRICS", "NAMESPACE_ONLY", "OPENMETRICS_TYPE", "TEXT_TYPE", "get_metrics"]
