"""The Grafana dashboard and the Prometheus files query metrics that a real node has."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from hubmere.endpoints.http.metrics import METRICS
from hubmere.testing import Node

DEPLOY = Path(__file__).parents[2] / "deploy"
# Labels that Prometheus adds to every metric, and the metric that it adds itself.
_ADDED_LABELS = {"job", "instance"}
_PROMETHEUS_OWN = "up"
_SELECTED = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
_NAMED = re.compile(r"\b[a-z][a-z_0-9]*\b(?!\s*[({=])")
_GROUPED = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
_WORDS = {"by", "sum", "rate", "increase", "deriv", "histogram_quantile", "label_values", "and", "or", "m", "h", "s"}
_SERIES = ("_bucket", "_sum", "_count")


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """Every metric of a node, with its labels, including those of captured hubs and of gateways of a cluster."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        text = httpx.get(f"{node.http}/metrics").text
    found: dict[str, set[str]] = {name: set() for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)}
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, re.MULTILINE):
        found[name.removesuffix("_bucket")] |= set(re.findall(r'(\w+)="', labels)) - {"le"}
    declared = {metric.name: set(metric.labels) for metric in METRICS}
    silent = {name for name, labels in found.items() if not labels and declared[name]}
    assert silent <= {"hubmere_consumer_lag_events"}
    assert {name: labels for name, labels in found.items() if name not in silent} == {
        name: labels for name, labels in declared.items() if name in found and name not in silent
    }
    omitted = ("hubmere_capture_", "hubmere_gateway_")
    assert all(name.startswith(omitted) for name in declared.keys() - found.keys())
    series = {
        f"{metric.name}{suffix}": {*metric.labels, *(("le",) if suffix == "_bucket" else ())}
        for metric in METRICS
        if metric.kind == "histogram"
        for suffix in _SERIES
    }
    return declared | series


def the_dashboard() -> Any:
    return json.loads((DEPLOY / "grafana" / "hubmere.json").read_text())


def queries() -> list[str]:
    """Every query of the files."""
    dashboard = the_dashboard()
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    return panels + variables + [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]


def metrics_in(query: str) -> dict[str, set[str]]:
    """The metrics of a query, with the labels that select them."""
    found = {name: set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", labels)) for name, labels in _SELECTED.findall(query)}
    variable = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, \w+\)", query)
    if variable is not None:
        found.setdefault(variable[1], set())
    return found


@pytest.mark.parametrize("query", queries())
def test_queries_name_existing_metrics_and_labels(metrics: dict[str, set[str]], query: str) -> None:
    """A panel that stays empty is misleading."""
    asked = metrics_in(query)

    assert asked
    for name, labels in asked.items():
        assert name == _PROMETHEUS_OWN or name in metrics
        assert labels <= metrics.get(name, set()) | _ADDED_LABELS


@pytest.mark.parametrize("query", queries())
def test_every_metric_of_a_query_has_a_selector(query: str) -> None:
    """The test above finds names by their selectors."""
    bare = _GROUPED.sub("", _SELECTED.sub("", query))
    bare = re.sub(r"\[[^]]*\]", "", bare)

    if query.startswith("label_values("):
        return
    assert set(_NAMED.findall(bare)) <= _WORDS


def test_dashboard_can_be_imported_anywhere() -> None:
    """Its data source is a variable, and its panels have positions and ids."""
    dashboard = the_dashboard()

    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert all({"x", "y", "w", "h"} <= panel["gridPos"].keys() for panel in panels)
    assert "id" not in dashboard


def test_scrape_file_uses_the_default_address_of_a_node() -> None:
    """The path and the port are those of `hubmere up`."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())

    [job] = config["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert job["static_configs"] == [{"targets": ["localhost:5300"]}]
    assert all((DEPLOY / "prometheus" / name).is_file() for name in config["rule_files"])


def test_every_alert_has_a_description() -> None:
    """The operator must know what to do."""
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())

    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)
