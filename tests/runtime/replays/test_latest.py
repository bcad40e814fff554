"""Tests of streams that keep the latest row per key: superseded rows no longer join, and merges
drop them.

``python -m tests.support.scenarios.run --engine local --latest`` runs as many scenarios as one
likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Failure, Visibility
from anabranch_runtime.epochs.access import latest_tiles
from anabranch_runtime.epochs.failed_queries import take_out
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.ownership import without
from anabranch_runtime.epochs.retention import drop_unused
from anabranch_runtime.index.latest import superseded
from anabranch_runtime.inspection import describe
from anabranch_runtime.state.coverage import Tile
from anabranch_runtime.state.manifest import State
from tests.support.cases.states import RS, ST, R, S, T, rules
from tests.support.scenarios.latest import generate_with_latest
from tests.support.scenarios.run import assert_exact, replay
from tests.support.scenarios.seeds import (
    LATEST_FEW,
    LATEST_MANY,
    LATEST_REPLAYS,
    few,
    mostly_slow,
    parts,
)
from tests.support.worlds.local_replay import LocalReplay

#: Features that the scenarios must cover.
WANTED = {
    "keeps the latest",
    "merge leaves out what is not the latest",
    "activated anew, no longer the latest of the same key",
    "late tuples",
    "out of order",
    "restart",
    "MIR",
}
MINUTE = 60_000_000
_KEYS = st.one_of(st.none(), st.integers(0, 3))
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "ab"]))


@given(st.lists(st.tuples(_KEYS, _TEXTS, st.integers(-3, 3), st.booleans()), min_size=1))
def test_superseded_rows(rows: list[tuple[int | None, str | None, int, bool]]) -> None:
    numbers, texts, tau, by = (list(column) for column in zip(*rows, strict=True))

    def expected(at: int) -> bool:
        return any(
            by[other] and tau[other] > tau[at] and numbers[other] == numbers[at]
            and texts[other] == texts[at] and None not in (numbers[at], texts[at])
            for other in range(len(rows))
        )  # fmt: skip

    # Slices of longer arrays, as columns of blocks are.
    keys = [pa.array([9, *numbers], pa.int64())[1:], pa.array(["a", *texts], pa.string())[1:]]
    found = superseded(keys, np.array(tau, np.int64), np.array(by))
    assert found.tolist() == [expected(at) for at in range(len(rows))]


@pytest.mark.parametrize("seeds", few(LATEST_FEW, 4, 5), ids=str)
def test_runs_that_keep_the_latest_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate_with_latest, WANTED)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(LATEST_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_that_keep_the_latest_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate_with_latest, WANTED)


@pytest.mark.slow
@pytest.mark.parametrize("seed", LATEST_REPLAYS)
def test_a_replay_that_keeps_the_latest_is_exact(seed: int, tmp_path: Path) -> None:
    verdict, _ = replay(seed, tmp_path, generate_with_latest)
    assert not verdict.problems, str(verdict)


# --- by hand -----------------------------------------------------------------------------------


def written(folder: Path, tables: Mapping[str, Mapping[str, Any]], document: Any) -> Path:
    """Write a scenario over streams with a key ``k``, a value ``v`` and an event time
    in minutes.
    """
    folder.mkdir(exist_ok=True)
    for name, columns in tables.items():
        moments = pa.array([m * MINUTE for m in columns["ts"]], pa.timestamp("us", tz="UTC"))
        plain = {c: pa.array(columns[c], pa.int64()) for c in ("k", "v")}
        pq.write_table(pa.table({**plain, "ts": moments}), folder / f"{name}.parquet")
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def results(out: Path) -> list[tuple[Any, ...]]:
    """Return the results of ``q``, in order of batches."""
    files = sorted(str(f) for f in (out / "results" / "q").glob("*.parquet"))
    found = duckdb.execute(f"SELECT * FROM read_parquet({files}, filename = true)").fetchall()
    return [row[:-1] for row in sorted(found, key=lambda r: (r[-1], *map(str, r[:-1])))]


def test_a_stream_as_a_table(redis: str, tmp_path: Path) -> None:
    """Orders join with the latest price when both have arrived; each batch has one of each."""
    stream = {"event_time": "ts", "lateness": "unbounded", "rows_per_batch": 1}
    tables: dict[str, dict[str, list[int | None]]] = {
        # Minute 3 arrives after minute 5, so it never counts.
        "prices": {"k": [1, 1, 1, 1, 2, None], "v": [10, 20, 30, 40, 50, 60],
                   "ts": [1, 2, 5, 3, 6, 7]},
        "orders": {"k": [1, 1, 1, 1, 2, 1], "v": [1, 2, 3, 4, 5, 6], "ts": [1, 2, 3, 4, 5, 6]},
    }  # fmt: skip
    document = {
        "streams": {
            "prices": {**stream, "path": "prices.parquet", "retention": {"latest": ["k"]}},
            "orders": {**stream, "path": "orders.parquet"},
        },
        "queries": {"q": {"sql": "SELECT o.v AS o, p.v AS p FROM orders o "
                                 "JOIN prices p ON p.k = o.k"}},
        "epochs": {"every": 2},
    }  # fmt: skip
    path = written(tmp_path / "world", tables, document)
    LocalReplay(path, tmp_path / "out", redis).run()
    assert results(tmp_path / "out") == [
        (1, 10),
        (1, 20), (2, 20),  # The new price with the first order too: it has arrived last.
        (1, 30), (2, 30), (3, 30),
        (4, 30),
        (5, 50),
        (6, 30),
    ]  # fmt: skip


def test_what_was_there_before_is_not_superseded_by_its_like(redis: str, tmp_path: Path) -> None:
    """Only the latest prices are kept from batch 4 on; batch 5 merges earlier ones."""
    stream = {"event_time": "ts", "lateness": "unbounded", "rows_per_batch": 1}
    tables = {
        "prices": {"k": [1, 1, 2, 2, 3, 3, 3, 1], "v": list(range(8)), "ts": list(range(8))},
        "orders": {"k": [0, 0, 0, 0, 0, 0, 1, 1], "v": list(range(8)), "ts": list(range(8))},
    }
    document = {
        "streams": {
            "prices": {**stream, "path": "prices.parquet", "retention": {3: {"latest": ["k"]}}},
            "orders": {**stream, "path": "orders.parquet"},
        },
        "queries": {"q": {"sql": "SELECT o.v AS o, p.v AS p FROM orders o "
                                 "JOIN prices p ON p.k = o.k"}},
        "epochs": {"every": 2},
    }  # fmt: skip
    path = written(tmp_path / "world", tables, document)
    LocalReplay(path, tmp_path / "out", redis).run()
    assert results(tmp_path / "out") == [(6, 0), (6, 1), (6, 7), (7, 7)]
    (prices,) = (
        s for s in describe(tmp_path / "out" / "state")["stores"] if s["store"] == "prices/1"
    )
    assert len(prices["levels"]) > 1
    assert prices["rows"] == 7


@pytest.mark.e2e
@pytest.mark.parametrize("where", mostly_slow(["", " WHERE s.v >= 0"]))
def test_state_is_bounded_by_the_number_of_keys(redis: str, tmp_path: Path, where: str) -> None:
    batches, rows, keys = 60, 20, 10
    rng = np.random.default_rng(3)
    order = np.repeat(np.arange(batches), rows)
    shares = rng.integers(0, 5, len(order))
    world: dict[str, dict[str, list[Any]]] = {
        name: {"k": rng.integers(0, keys, len(order)).tolist(), "v": order.tolist(),
               "ts": (5 * order + shares).tolist()}
        for name in ("r", "s")
    }  # fmt: skip
    kept = {}
    for name, retention in (("all", {}), ("latest", {"retention": {"latest": ["k"]}})):
        stream = {"event_time": "ts", "lateness": "unbounded", "rows_per_batch": rows}
        document = {
            "streams": {n: {**stream, "path": f"{n}.parquet", **retention} for n in world},
            "queries": {"q": {"sql": f"SELECT r.v, s.v AS w FROM r JOIN s ON r.k = s.k{where}"}},
            "epochs": {"every": 5},
        }
        folder = tmp_path / name
        LocalReplay(written(folder, world, document), folder / "out", redis).run()
        stores = describe(folder / "out" / "state")["stores"]
        kept[name] = {s["store"]: s["rows"] for s in stores}
    assert set(kept["all"].values()) == {batches * rows}
    # Five segments per level, and levels do not grow.
    assert max(kept["latest"].values()) <= 15 * keys
    assert set(kept["latest"]) >= {"r/1", "s/1"} if not where else len(kept["latest"]) == 3


# --- what a change does ------------------------------------------------------------------------


def planned(epoch: int, *latest: str, **queries: str) -> Ruleset:
    """Return a ruleset under which S keeps the latest row of a key."""
    streams = (R, replace(S, latest=latest), T)
    return rules(epoch, queries or {"q": RS, "p": ST}, streams=streams)


def entered(state: State, known: Ruleset, after: int = 3) -> State:
    """Return the state in an epoch under ``known``, ``after`` batches into it."""
    state = drop_unused(enter_epoch(state, known, known.epoch), known, {})
    streams = {n: replace(s, input=9, max_tau=MINUTE) for n, s in state.streams.items()}
    return replace(state, streams=streams, next_batch=state.next_batch + after)


def test_it_begins_with_an_epoch_and_ends_nothing() -> None:
    state = entered(State(), planned(0))
    found = entered(state, planned(1, "a"))
    assert found.streams["S"].latest_since == 3
    assert found.streams["R"].latest_since is None
    assert found.queries == state.queries
    assert found.stores.keys() == state.stores.keys()
    again = entered(found, planned(2, "a"))
    assert again.streams["S"].latest_since == 3
    known = planned(2, "a")
    assert latest_tiles(again, known) == {"S": (Tile("S/1", (3, 9)),)}


@pytest.mark.parametrize("key", [(), ("b",), ("a", "b")])
def test_another_key_or_none_starts_the_stream_anew(key: tuple[str, ...]) -> None:
    state = entered(entered(State(), planned(0, "a")), planned(1, "a"))
    found = entered(state, planned(2, *key))
    assert found.streams["S"].latest_since == (6 if key else None)
    assert found.streams["S"].input == 9
    for query in found.queries.values():
        assert (query.activated_batch, query.earlier[-1].expired_batch) == (6, 6)
        assert query.visible_from["S"] == Visibility(6, None)
        assert query.complete == "never"
    assert found.queries["q"].visible_from["R"] == Visibility(0, None)
    assert found.stores["S/1"].covers(8) == ((6, 8),)
    assert found.stores["R/1"].covers(8) == ((0, 8),)


def test_the_same_key_in_another_order_is_the_same() -> None:
    state = entered(State(), planned(0, "a", "b"))
    found = entered(state, planned(1, "b", "a"))
    assert found.streams["S"].latest_since == 0
    assert found.queries == state.queries


def test_a_stream_that_nobody_reads_begins_again() -> None:
    state = entered(State(), planned(0, "a", q=RS))
    away = entered(state, planned(1, "a", t="SELECT b FROM T"))
    assert away.streams["S"].latest_since is None
    assert "S/1" not in away.stores
    back = entered(away, planned(2, "a", q=RS))
    assert back.streams["S"].latest_since == 6
    # A key that changed meanwhile ends nothing, since nothing was kept.
    assert entered(away, planned(2, "b", q=RS)).queries["q"].earlier == ()


def test_it_goes_on_for_those_whose_queries_have_not_failed() -> None:
    filtered = f"{ST} WHERE S.a > 1"
    known = planned(0, "a", q=f"{RS} WHERE S.b > 1", p=filtered)
    (rule,) = known.latest_rules
    state = entered(State(), known)
    failure = Failure("bad", "bad", "x", 2)
    left = take_out(state, known, {"q": failure})
    assert left.streams["S"].latest_since == 0
    rest = without(known, frozenset({"q"}))
    assert rest.latest_rules == known.latest_rules
    assert rule.store in {s.id for s in rest.stores}
    rest.validate()
    none = take_out(state, known, {"q": failure, "p": failure})
    assert none.streams["S"].latest_since is None
    assert without(known, frozenset({"q", "p"})).latest_rules == ()
