"""Tests of Grafana dashboards and alert rules: existing metrics and labels, in
valid expressions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.presenters.test_pipeline_metrics import DOCUMENT, rows

ROOT = Path(__file__).parents[3]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/anabranch.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
    *(one["expr"] for one in DASHBOARD["annotations"]["list"]),
]
#: Time series -> its labels.
SERIES: dict[str, set[str]] = {}
for _name, _kind, _labels, _ in rows():
    _known = set(re.findall(r"`(\w+)`", _labels))
    if _kind == "histogram":
        SERIES |= {f"{_name}_bucket": _known | {"le"}, f"{_name}_sum": _known}
        SERIES |= {f"{_name}_count": _known}
    else:
        SERIES[_name] = _known


def named(expression: str) -> set[str]:
    return set(re.findall(r"\banabranch_\w+", expression))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_what_exists(expression: str) -> None:
    found = named(expression)
    assert found
    assert found <= set(SERIES)
    labels = set().union(*(SERIES[name] for name in found))
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    matched = re.findall(r"[{,]\s*(\w+)\s*(?:=|!=|=~|!~)\s*\"", expression)
    assert {label.strip() for group in grouped for label in group.split(",")} | set(
        matched
    ) <= labels


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_parses(expression: str) -> None:
    promql = pytest.importorskip("promql_parser", reason="pip install promql-parser")
    parsed = promql.parse(expression.replace("$__rate_interval", "5m"))
    assert {name for name in selectors(parsed) if name} == named(expression)


def selectors(node: Any) -> Iterator[str]:
    """Return the names of all series that a parsed expression reads."""
    if hasattr(node, "vector_selector"):
        yield node.vector_selector.name
    elif hasattr(node, "matchers"):
        yield node.name
    for part in ("expr", "lhs", "rhs"):
        if getattr(node, part, None) is not None:
            yield from selectors(getattr(node, part))
    for part in getattr(node, "args", None) or ():
        yield from selectors(part)


def test_the_dashboard_shows_every_metric_that_a_rule_names() -> None:
    shown = set().union(*(named(e) for e in EXPRESSIONS[len(RULES) :]))
    of_rules = set().union(*(named(rule["expr"]) for rule in RULES))
    # A counter of errors is for its alert.
    assert of_rules - shown == {"anabranch_epoch_loop_errors_total"}


def test_panels_have_places_of_their_own() -> None:
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not places & cells
        places |= cells
    idents = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(idents)) == len(idents)


def test_every_alert_says_what_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]
    described = re.findall(r"^\| `(Anabranch\w+)` \|", DOCUMENT.read_text(), re.MULTILINE)
    assert described == names
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= set().union(
            *(SERIES[name] for name in named(rule["expr"]))
        )
