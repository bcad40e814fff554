"""Tests of the Nexmark benchmark at a small scale: events follow the model, and queries have
DuckDB's rows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.nexmark import generator, report, together
from benchmarks.nexmark.answers import Answers, forms_of
from benchmarks.nexmark.exact import NexmarkRun, exact, main
from benchmarks.nexmark.generator import Events, generate
from benchmarks.nexmark.statements import JOINS, QUERIES
from benchmarks.nexmark.variants import variants
from benchmarks.session import WrongResultError
from tests.support.surroundings.redis import redis_url

_EVENTS, _RATE = 50_000, 1000.0


@pytest.fixture(scope="module")
def streams() -> dict[str, Events]:
    return generate(_EVENTS, rate=_RATE)


def _share(table: pa.Table, column: str, chosen: pa.Array) -> float:
    return float(pc.mean(pc.cast(pc.equal(table[column], chosen), pa.float64())).as_py())


def test_events_have_the_published_proportions(streams: dict[str, Events]) -> None:
    sizes = {name: one.table.num_rows for name, one in streams.items()}
    assert sizes == {"person": 1000, "auction": 3000, "bid": 46_000, "side_input": 10_000}
    numbers = np.concatenate([streams[name].numbers for name in ("person", "auction", "bid")])
    assert np.array_equal(np.sort(numbers), np.arange(_EVENTS))
    assert streams["auction"].table["id"].to_pylist() == list(range(1000, 4000))


def test_times_follow_the_rate(streams: dict[str, Events]) -> None:
    begin = int(generator.BEGIN.timestamp()) * 1_000_000
    for name in ("person", "auction", "bid"):
        times = streams[name].table["date_time"].cast(pa.int64()).to_numpy()
        assert np.array_equal(times, begin + streams[name].numbers * 1000)


def test_hot_values_have_their_shares(streams: dict[str, Events]) -> None:
    bids, auctions = streams["bid"], streams["auction"]
    person = bids.numbers // 50
    hot = pa.array(1000 + person // 100 * 100 + 1)
    assert 0.75 < _share(bids.table, "bidder", hot) < 0.77
    newest = bids.numbers // 50 * 3 + 2
    assert 0.49 < _share(bids.table, "auction", pa.array(1000 + newest // 100 * 100)) < 0.53
    seller = pa.array(1000 + auctions.numbers // 50 // 100 * 100)
    assert 0.73 < _share(auctions.table, "seller", seller) < 0.79
    known = pc.is_in(bids.table["channel"], pa.array(generator.WELL_KNOWN))
    assert 0.49 < pc.mean(pc.cast(known, pa.float64())).as_py() < 0.51


def test_identifiers_are_at_most_ten_ahead(streams: dict[str, Events]) -> None:
    bids = streams["bid"]
    ahead = bids.table["auction"].to_numpy() - 1000 - (bids.numbers // 50 * 3 + 2)
    assert 0 < ahead.max() <= generator.LEAD
    ahead = bids.table["bidder"].to_numpy() - 1000 - bids.numbers // 50
    assert 0 < ahead.max() <= generator.LEAD


def test_auctions_last_as_long_as_a_hundred_are_open(streams: dict[str, Events]) -> None:
    table = streams["auction"].table
    lasting = pc.subtract(table["expires"].cast(pa.int64()), table["date_time"].cast(pa.int64()))
    horizon = 100 * 50 / 3 / _RATE * 1e6
    assert 0.95 * horizon < pc.mean(lasting).as_py() < 1.05 * horizon
    assert pc.min(lasting).as_py() > 0


def test_equal_seeds_give_equal_events(streams: dict[str, Events]) -> None:
    again, other = generate(_EVENTS, rate=_RATE), generate(_EVENTS, rate=_RATE, seed=2)
    for name in ("person", "auction", "bid"):
        assert again[name].table.equals(streams[name].table)
        assert not other[name].table.equals(streams[name].table)


def test_a_channel_has_one_address(streams: dict[str, Events]) -> None:
    pairs = streams["bid"].table.select(["channel", "url"]).group_by(["channel", "url"])
    channels = pairs.aggregate([])["channel"]
    assert len(channels) == pc.count_distinct(channels).as_py() > 5000
    numbered = pc.match_substring(streams["bid"].table["url"], "channel_id=")
    assert 0.40 < pc.mean(pc.cast(numbered, pa.float64())).as_py() < 0.50


def test_the_queries_are_all_of_nexmarks() -> None:
    assert [query.name for query in QUERIES] == [f"q{n}" for n in range(24)]
    joins = "q3 q4 q5 q7 q8 q9 q13 q18 q19 q20 q23"
    assert " ".join(query.name for query in JOINS) == joins


def test_every_query_has_duckdbs_rows(tmp_path: Path) -> None:
    """Tasks and drivers are killed meanwhile; queries without parts are compared after
    each batch.
    """
    with redis_url() as url:
        run = NexmarkRun(tmp_path, url, 2, QUERIES, events=2000, batches=4, rate=100.0)
        run.play()
    assert list(run.compared) == [query.name for query in QUERIES]
    assert min(run.compared.values()) > 0
    assert run.events["answers with rows"] == len(QUERIES)
    assert run.events["compared"] > 4 * len(QUERIES)
    # Streams are kept for queries without a time bound, and parts, since they have no event times.
    kept = {query.name: run.kept(query.name) for query in QUERIES}
    assert {name: found for name, found in kept.items() if found} == {
        "q3": ["auction", "person"],
        "q4": ["auction"],
        "q5": ["parts"],
        "q6": ["auction"],
        "q7": ["bid", "parts"],
        "q8": ["parts"],
        "q9": ["auction"],
        "q20": ["auction", "bid"],
        "q23": ["auction", "bid", "person"],
    }
    # DuckDB has the same results over the result files alone; not if one file is missing.
    results = run.settings.results
    answers = Answers(run.generated, QUERIES, results)
    assert {query.name: answers.check(query) for query in QUERIES} == run.compared
    for query in QUERIES:
        if query.name in ("q0", "q7", "q9"):
            max((results / query.name).glob("*.parquet"), key=lambda f: f.stat().st_size).unlink()
            with pytest.raises(WrongResultError, match=f"{query.name}: .* rows missing"):
                answers.check(query)
    answers.close()


def test_a_wrong_answer_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = [query for query in QUERIES if query.name in ("q2", "q3")]
    wrong = replace(chosen[1], duck=chosen[1].sql.replace("= 10", "= 11"))
    with pytest.raises(AssertionError, match="q3 after batch"):
        exact(1, [chosen[0], wrong], events=3000, batches=3, rate=100.0)
    # Too few events for q2, which wants bids on certain auctions.
    small = ["--events", "100", "--batches", "2", "--queries", "q0", "q2", "--calm"]
    assert main(small) == 1
    assert "seed 1: no rows: q2" in capsys.readouterr().err


def test_variants_differ_and_have_rows() -> None:
    chosen = variants(100)
    assert len({query.sql for query in chosen}) == len({query.name for query in chosen}) == 100
    assert variants(10) == chosen[:10]
    streams = generate(40_000, rate=_RATE)
    assert forms_of(streams, chosen).keys() == {query.name for query in chosen}
    with duckdb.connect() as connection:
        for name, one in streams.items():
            connection.register(name, one.table)
        rows = [len(connection.sql(query.sql)) for query in chosen]
    assert sum(count > 0 for count in rows) > 90
    with pytest.raises(ValueError, match="there are 355 variants, not 356"):
        variants(356)


@pytest.mark.slow
@pytest.mark.spark
def test_queries_at_once_and_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "benchmarks" / "nexmark.jsonl"
    saved.parent.mkdir()
    assert report.main(["--docs", str(tmp_path)]) == 1
    small = ["--json", "--events", "2100", "--batches", "3"]
    assert main([*small, "--rate", "100", "--queries", "q3", "q7", "q13"]) == 0
    both = ["--rate", "100", "--queries", "q3", "q7", "--variants", "4", "--runs", "1"]
    assert together.main([*small, *both]) == 0
    lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [one["part"] for one in lines] == ["exact", "together"]
    exact_rows, costs = lines[0]["rows"], lines[1]
    assert costs["runs"]["together"][0]["rows"].keys() == {"q3", "q7"}
    assert costs["input_tuples"] == 2100 + generator.SIDE_ROWS
    assert costs["singles"].keys() == {"q3", "q7"}
    for name in ("q3", "q7"):
        assert costs["runs"][name][0]["rows"][name] == exact_rows[name][0] > 0
    apart = sum(one["cpu_seconds"]["median"] for one in costs["singles"].values())
    assert costs["sum_of_singles"]["median"] == pytest.approx(apart, abs=0.02)
    # A second round with the same settings is pooled with the first; one with others is not.
    again = {**costs, "at": "2030-01-01T00:00:00Z"}
    other = {**costs, "settings": {}, "at": "2031-01-01T00:00:00Z"}
    saved.write_text("".join(json.dumps(one) + "\n" for one in (lines[0], other, costs, again)))
    assert report.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "benchmarks-nexmark.md").read_text()
    assert "| q13 | bids with a row of a table |" in page
    assert "| all 2 join queries at once |" in page
    assert "2030-01-01T00:00:00Z" in page
    assert "2031-01-01T00:00:00Z" not in page
