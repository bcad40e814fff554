"""What a generated scenario has in it, so that a short list of seeds can be shown to have all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import yaml

from tests.support.oracle import Oracle
from tests.support.replay_check import filtered
from tests.support.scenario_file import Scenario, read_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.oracle import OracleQuery
    from tests.support.scenarios import Generated

#: What the short list must cover. ``key x`` is a key of domain x (see ``scenario_rows``).
WANTED = frozenset(
    {
        "late tuples",
        "invalid tuples",
        "stream without event time",
        "optimizer switched",
        "self-join",
        "arrives",
        "never active",
        "leaves",
        "sees the past",
        "window",
        "window map",
        "no window",
        "time condition",
        "composite key",
        "parallelism 1",
        "parallelism 2",
        "parallelism 3",
        "parallelism 4",
        "2-way",
        "3-way",
        "4-way",
        "5-way",
        "key i",
        "key s",
        "key f",
        "key m",
        "key d",
        "key t",
    }
)


def features(generated: Generated) -> set[str]:
    """The features of a scenario, by name."""
    scenario = read_scenario(generated.path)
    doc = yaml.safe_load(generated.path.read_text())
    oracle = Oracle(scenario)
    try:
        found = set(_of_streams(scenario, oracle))
        batches = oracle.batches()
    finally:
        oracle.close()
    if isinstance(doc["optimizer"], dict):
        found.add("optimizer switched")
    found.add(f"parallelism {doc['parallelism']}")
    for name, query in generated.queries.items():
        found |= set(_of_query(query))
        found |= set(_of_life(scenario, name, generated.queries, batches))
        window = doc["queries"][name].get("window")
        found.add("no window" if window is None else "window map" if isinstance(window, dict)
                  else "window")  # fmt: skip
    return found


def _of_streams(scenario: Scenario, oracle: Oracle) -> Iterator[str]:
    for name, stream in scenario.streams.items():
        counts = oracle.counts(name)
        if counts.late:
            yield "late tuples"
        if counts.invalid:
            yield "invalid tuples"
        if stream.event_time is None:
            yield "stream without event time"


def _of_query(query: OracleQuery) -> Iterator[str]:
    streams = [s for _, s in query.members]
    yield f"{len(streams)}-way"
    if len(set(streams)) < len(streams):
        yield "self-join"
    if any("INTERVAL" in c for c in query.where):
        yield "time condition"
    keys = [c.split(" = ") for c in query.where if c.count(" = ") == 1 and len(c.split()) == 3]
    edges = Counter(frozenset(side.split(".")[0] for side in key) for key in keys)
    if max(edges.values()) > 1:
        yield "composite key"
    for key in keys:
        for side in key:
            yield f"key {side.split('.')[1][0]}"


def _of_life(
    scenario: Scenario, name: str, queries: dict[str, OracleQuery], batches: int
) -> Iterator[str]:
    begins, ends = scenario.span(name, batches)
    if begins is None:
        yield "never active"
        return
    if ends is not None:
        yield "leaves"
    if begins == 0:
        return
    yield "arrives"
    stored = {
        stream
        for other, query in queries.items()
        for alias, stream in query.members
        if alias not in filtered(query)
        and scenario.span(other, batches)[0] == 0
        and (scenario.span(other, batches)[1] or batches) > begins
    }
    if {s for _, s in queries[name].members} <= stored and not filtered(queries[name]):
        yield "sees the past"
