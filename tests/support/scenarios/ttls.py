"""Random scenarios in which streams have ttls that change while queries run.

Ttls are drawn by a separate generator, so that the rest of a seed's scenario stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import yaml

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from tests.support.oracles.oracle import Oracle
from tests.support.plain_service import stream_of
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import Scenario, read_document, read_scenario
from tests.support.scenarios.rows import RECORDED, Size

#: A batch has some ten minutes of event time (``scenario_rows``).
_TTLS = ("5 minutes", "10 minutes", "PT15M", "25 minutes", "40 minutes", "1 hour", "PT2H")


def generate_with_ttls(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed`` with ttls."""
    return with_ttls(generate(seed, folder, size), seed)


def with_ttls(generated: Generated, seed: int) -> Generated:
    """Set ttls on some streams of the scenario; most of the ttls change between batches.

    A ttl under which a query would be refused is not set: on a stream that is joined with one that
    has no event time, or one that contradicts a query's own conditions. In half of the scenarios
    only ttls bound queries: windows over streams with ttls are removed, and the lateness is small,
    so that a short ttl drops many tuples that a longer one would have kept.
    """
    rng = Random(f"ttl {seed}")
    oracle = Oracle(read_scenario(generated.path))
    batches = oracle.batches()
    oracle.close()
    document = read_document(generated.path)
    alone = rng.random() < 0.5
    drawn = {
        name: _growing(rng, batches) if alone else _calls(rng, batches)
        for name, stream in document["streams"].items()
        if "event_time" in stream and (alone or rng.random() < 0.8)
    }
    for name in _impossible(generated, drawn):
        drawn.pop(name, None)
    for name, calls in drawn.items():
        constant = set(calls) == {0}
        document["streams"][name]["retention"] = calls[0] if constant else calls
        if alone:
            document["streams"][name]["lateness"] = rng.choice(("0 seconds", "5 minutes"))
    for name, query in document["queries"].items():
        if alone and {stream for _, stream in generated.queries[name].members} <= set(drawn):
            query.pop("window", None)
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated


def _calls(rng: Random, batches: int) -> dict[int, Any]:
    """Batch -> retention that is set before it: the first one of a stream, and its changes."""
    calls: dict[int, Any] = {} if rng.random() < 0.4 else {0: _retention(rng)}
    for batch in sorted(rng.sample(range(1, batches), min(batches - 1, rng.choice((0, 1, 2, 3))))):
        calls[batch] = None if calls and rng.random() < 0.25 else _retention(rng)
    return calls or {0: _retention(rng)}


def _growing(rng: Random, batches: int) -> dict[int, Any]:
    """Return a short ttl from the beginning, and longer ones later."""
    times = sorted(rng.sample(range(2, batches), min(batches - 2, rng.choice((1, 2)))))
    ttls = sorted(rng.sample(range(len(_TTLS) - 1), len(times) + 1))
    return {b: {"ttl": _TTLS[t]} for b, t in zip((0, *times), ttls, strict=True)}


def _retention(rng: Random) -> dict[str, str]:
    return {"ttl": "0 seconds" if rng.random() < 0.04 else rng.choice(_TTLS)}


def _impossible(generated: Generated, drawn: dict[str, dict[int, Any]]) -> Iterable[str]:
    """Return streams of queries that could not be planned if all ttls were least at once."""
    document = read_document(generated.path)
    for name, calls in drawn.items():
        document["streams"][name]["retention"] = calls
    generated.path.write_text(yaml.safe_dump(document))
    scenario: Scenario = read_scenario(generated.path)
    least = {
        name: min((t for _, t in entry.ttls if t is not None), default=None)
        for name, entry in scenario.streams.items()
    }
    streams = {n: replace(stream_of(scenario, n), ttl=least[n]) for n in scenario.streams}
    for name, entry in scenario.queries.items():
        try:
            parse_sql(name, entry.sql, streams, entry.window)
        except QueryError:
            yield from (stream for _, stream in generated.queries[name].members)
