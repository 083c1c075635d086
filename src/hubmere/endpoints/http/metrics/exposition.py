"""Two text formats for metrics: Prometheus 0.0.4, and OpenMetrics 1.0 for scrapers that ask for it.

They differ in the content type, in the names of counters in `# TYPE` lines (OpenMetrics leaves `_total` out) and in the
last line, `# EOF`. Decides the format by the Accept header; knows nothing about what is measured.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from hubmere.model.monitoring.histogram import Histogram

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
_TOTAL = "_total"
_ESCAPES = re.compile(r'[\\"\n]')
_ESCAPED = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
_QUALITY = re.compile(r"^\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*$")
_OPENMETRICS = "application/openmetrics-text"
_PLAIN = ("text/plain", "text/*", "*/*")
# A header longer than this is no list of formats.
_MAX_ACCEPT = 4096


class Metric(NamedTuple):
    """The declaration of a metric. The name of a counter ends in `_total`."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value: what is added to the metric's name, the values of its labels in their order, the number."""

    labels: tuple[str, ...]
    value: float | int
    suffix: str = ""
    # Label `le` of a histogram's bucket.
    bound: str | None = None


Family = tuple[Metric, Iterable[Sample]]


def histogram_samples(histogram: Histogram) -> Iterator[Sample]:
    """The series of a histogram without labels of its own."""
    count = histogram.count
    for bound_s, counted in zip(histogram.bounds_s, histogram.cumulative_counts(), strict=True):
        yield Sample((), counted, "_bucket", f"{bound_s:g}")
    yield Sample((), count, "_bucket", "+Inf")
    yield Sample((), round(histogram.total_s, 6), "_sum")
    yield Sample((), count, "_count")


def wants_openmetrics(accept: str | None) -> bool:
    """Whether a client prefers OpenMetrics to the older format (RFC 9110, 12.5.1)."""
    wishes = _wishes(accept or "")
    asked = wishes.get(_OPENMETRICS, 0.0)
    return asked > 0 and asked >= max((wishes.get(kind, 0.0) for kind in _PLAIN), default=0.0)


def _wishes(accept: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for entry in accept[:_MAX_ACCEPT].split(","):
        kind, *parameters = entry.split(";")
        qualities = [float(match.group(1)) for each in parameters if (match := _QUALITY.match(each))]
        name = kind.strip().lower()
        found[name] = max(found.get(name, 0.0), qualities[0] if qualities else 1.0)
    return found


def lines(families: Iterable[Family], *, is_openmetrics: bool) -> Iterator[str]:
    """The text, line by line."""
    for metric, samples in families:
        base = metric.name.removesuffix(_TOTAL) if is_openmetrics else metric.name
        yield f"# HELP {base} {metric.help}"
        yield f"# TYPE {base} {metric.kind}"
        for sample in samples:
            yield f"{metric.name}{sample.suffix}{_labels(metric, sample)} {sample.value}"
    if is_openmetrics:
        yield "# EOF"


def _labels(metric: Metric, sample: Sample) -> str:
    named = list(zip(metric.labels, sample.labels, strict=False))
    if sample.bound is not None:
        named.append(("le", sample.bound))
    if not named:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in named) + "}"


def _escape(text: str) -> str:
    return _ESCAPES.sub(lambda found: _ESCAPED[found.group()], text)
