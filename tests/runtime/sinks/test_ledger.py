"""Test that outside readers can compute the kept results of rationed batches from recorded input
and the ledger.

The outsider has the results directory, the sent rows, and the documents that ``docs/semantics.md``
describes. The state directory is gone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.plans.batch_reads import BatchReads
from anabranch_contract.plans.rations import Ranking, Ration, RationSchedule
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_planner.passes import parse_sql
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.faults import Point
from anabranch_runtime.index.ranks import limit, ranks
from anabranch_runtime.sinks.ledger import LEDGER, READS, Ledger
from anabranch_runtime.sources.batch_input import BatchInput, Sources
from anabranch_runtime.sources.blocks import read_pieces
from anabranch_runtime.sources.feeds import Feeds
from anabranch_runtime.sources.ingest import landing
from anabranch_runtime.sources.ingest.spark_stream import source_name
from anabranch_runtime.sources.planned import PlannedSource, next_offsets
from anabranch_runtime.sources.recordings.recorded import Recorded
from anabranch_runtime.sources.recordings.recording import convert
from anabranch_runtime.state.offsets import Offsets
from tests.support.cases.random_rations import random_rations
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.fed import KEYS, QUERIES, STREAMS, Fed, Killed, damage

#: A row of a stream, and the batch that read it.
Arrived = tuple[int, int, int]


class Rationed(Fed):
    """A pipeline whose batches have random rations of ``q``; other queries have none."""

    def __init__(self, url: str, home: Path, chance: Random) -> None:
        self.chance, self.policy = chance, True
        self.query = parse_sql("q", QUERIES["q"], {s.name: s for s in STREAMS})
        super().__init__(url, home, on_bad_file="skip")

    def start(self) -> None:
        super().start()
        self.set_policy(ration=self.policy)

    def set_policy(self, *, ration: bool) -> None:
        """Set the overload policy to ration, or to wait."""
        self.policy = ration
        rationer = self.driver.rationer
        rationer.schedule = RationSchedule(0, 0, (), ()) if ration else None

        def drawn(ruleset: Ruleset, never: object = ()) -> tuple[Ration, ...]:
            if not ration or self.chance.random() < 0.4:
                return ()
            return random_rations(ruleset, [self.query], self.chance)

        rationer.rations = drawn  # type: ignore[method-assign]


@pytest.fixture
def url() -> Iterator[str]:
    fetch_ruleset.cache_clear()
    with redis_url() as found:
        yield found


def _play(fed: Rationed, chance: Random, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """Run batches of files and entries, with damaged files, restarts and kills."""
    fed.change("R", on_bad_file="skip")
    step = 0
    while fed.driver.state.next_batch < batches:
        step += 1
        if chance.random() < 0.7:
            path = fed.file(f"{step:04d}", [chance.randrange(9) for _ in range(70)])
            if chance.random() < 0.2:
                damage(path)
        if chance.random() < 0.8:
            fed.push([chance.randrange(9) for _ in range(chance.randrange(1, 20))])
        if chance.random() < 0.2:
            fed.start()
        point = chance.choice((None, None, Point.CHOSEN, Point.STAGED, Point.PUBLISHED))
        with monkeypatch.context() as patch:
            if point is not None:
                patch.setattr("anabranch_runtime.driver.driver.reach", _dying(patch, point))
            try:
                fed.turn()
            except Killed:
                fed.start()


def _dying(patch: pytest.MonkeyPatch, point: Point) -> Any:
    def reach(here: Point) -> None:
        if here is point:
            patch.undo()
            raise Killed

    return reach


def _documents(folder: Path) -> dict[int, dict[str, Any]]:
    return {int(file.stem): json.loads(file.read_text()) for file in folder.glob("*.json")}


def _arrived(fed: Fed, results: Path) -> dict[str, list[Arrived]]:
    """Return the rows read from each stream, with their batches."""
    found: dict[str, list[Arrived]] = {"R": [], "S": []}
    known = dict.fromkeys(found, 0)
    for batch, document in sorted(_documents(results / ".rations" / "reads").items()):
        assert (document["version"], document["batch"]) == (1, batch)
        assert {n: document["before"].get(n, 0) for n in known} == known
        for stream, source, unit, first, last in document["ranges"]:
            if unit == "rows":
                rows = fed.files[Path(source).name][first:last]
            else:
                assert (unit, source) == ("entries", KEYS.stream("S"))
                rows = [fed.entries[e] for e in fed.entries if _id(first) < _id(e) <= _id(last)]
            found[stream] += [(*row, batch) for row in rows]
            known[stream] += len(rows)
    return found


def _id(entry: str) -> tuple[int, int]:
    first, _, second = entry.partition("-")
    return int(first), int(second or 0)


def _kept(fed: Rationed, results: Path) -> list[tuple[int, int]]:
    """Return the results of ``q`` that rations have left: R's rows and S's with equal ``a``."""
    alias_of = {str(m.label): str(m.alias) for m in fed.query.members}
    limits: dict[int, dict[str, tuple[Ranking, int]]] = {}
    for batch, document in _documents(results / ".rations").items():
        for query, start, share, (columns, by_batch) in document["rations"]:
            assert query == "q"
            ranking = Ranking(tuple(map(tuple, columns)), by_batch)
            limits.setdefault(batch, {})[alias_of[start]] = (ranking, limit(share))

    def passes(alias: str, row: Arrived) -> bool:
        ranking, least = limits.get(row[2], {}).get(alias, (None, 0))
        if ranking is None:
            return True
        values = {"a": pa.array([row[0]], pa.int64()), "n": pa.array([row[1]], pa.int64())}
        return int(ranks(ranking, values.__getitem__, 1, row[2])[0]) < least

    arrived = _arrived(fed, results)
    partners: dict[int, list[Arrived]] = {}
    for row in arrived["S"]:
        partners.setdefault(row[0], []).append(row)
    found = []
    for r in arrived["R"]:
        for s in partners.get(r[0], ()):
            # Of two tuples in one batch, that of the stream with the greater name counts as the
            # later.
            last = ("R", r) if r[2] > s[2] else ("S", s)
            if passes(*last):
                found.append((r[1], s[1]))
    return sorted(found)


@pytest.mark.parametrize("seed", mostly_slow(range(4)))
def test_the_kept_set_follows_from_ledger_and_input(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = Random(seed)
    fed = Rationed(url, tmp_path / "fed", chance)
    _play(fed, chance, monkeypatch, 30)
    results, skipped = fed.home / "results", fed.recorded
    assert any(piece.source for _, piece in skipped)
    shutil.rmtree(fed.home / "state")
    arrived, kept = _arrived(fed, results), _kept(fed, results)
    assert sorted(_documents(results / ".rations" / "reads")) == list(range(30))
    assert [sorted((a, n) for a, n, _ in arrived[name]) for name in "RS"] == [
        fed.results("r"),
        fed.results("s"),
    ]
    everything = sum(r[0] == s[0] for r in arrived["R"] for s in arrived["S"])
    assert fed.results() == kept
    assert 0 < len(kept) < everything


def test_records_begin_with_the_policy_and_never_end(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(9)
    fed = Rationed(url, tmp_path / "fed", chance)
    reads = fed.home / "results" / ".rations" / "reads"
    fed.set_policy(ration=False)
    _play(fed, chance, monkeypatch, 4)
    assert not reads.exists()
    fed.set_policy(ration=True)
    _play(fed, chance, monkeypatch, 8)
    fed.set_policy(ration=False)
    fed.start()
    _play(fed, chance, monkeypatch, 12)
    documents = _documents(reads)
    assert sorted(documents) == list(range(4, 12))
    assert sum(documents[4]["before"].values()) > 0


def test_an_attempt_that_was_not_committed_leaves_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.publish(3, (), {}, None, None, BatchReads(3, ()))
    assert not ledger.records(3)
    assert ledger.records(4)
    ledger.publish(3, (), {}, None, None, None)
    assert not list((tmp_path / LEDGER / READS).glob("*.json"))


# --- every kind of source ------------------------------------------------------------------------

COLUMNS = (("a", "bigint"), ("n", "bigint"))


def _record(name: str, kind: str, home: Path, **options: str) -> StreamRecord:
    return StreamRecord(
        name=name,
        columns=tuple(ColumnRecord(name=c, type=t) for c, t in COLUMNS),
        source=SourceRecord(format=kind, path=str(home), options=options, rows_per_batch=17),
    )


def _land(record: StreamRecord, state: Path, number: int, files: list[pa.Table]) -> None:
    home = landing.home_of(state, source_name(record))
    folder = landing.begin(home)
    written: list[tuple[str, int, int]] = []
    schema = landing.landed_schema(COLUMNS)
    for table in files:
        path = folder / f"{len(written)}.arrow"
        arrays = [*(c.combine_chunks() for c in table.columns), pa.nulls(len(table), pa.binary())]
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
            file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        written.append((path.name, table.num_rows, path.stat().st_size))
    landing.finish(home, folder, number, landing.Landed(number, "v1", tuple(written), {}))


def _table(first: int, rows: int) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table({"a": [n % 5 for n in numbers], "n": list(numbers)})


class _World:
    """Streams of every kind, whose rows have unique numbers, and their batches."""

    def __init__(self, url: str, home: Path) -> None:
        self.state, self.rows = home / "state", dict[str, list[int]]()
        for name in ("parquet", "arrow", "json"):
            (home / name).mkdir(parents=True)
        records = [_record(n, "files", home / n, type=n) for n in ("parquet", "arrow", "json")]
        self.landed = _record("landed", "rate", home)
        records.append(self.landed)
        for number in range(3):
            table = _table(100 * number, 40)
            pq.write_table(table, home / "parquet" / f"{number}.parquet", row_group_size=9)
            with pa.ipc.new_file(str(home / "arrow" / f"{number}.arrow"), table.schema) as file:
                file.write_table(table, max_chunksize=7)
            lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
            (home / "json" / f"{number}.json").write_text(lines)
            _land(self.landed, self.state, number, [table.slice(0, 25), table.slice(25)])
        pq.write_table(_table(0, 60), home / "recorded.parquet")
        recording = _record("recorded", "recorded", home / "recorded.parquet")
        (home / "converted").mkdir()
        converted = [convert(recording, home / "converted")]
        self.planned: dict[str, PlannedSource] = {
            "feeds": Feeds(records, 3, url, "test", str(self.state), OPEN),
            "recorded": Recorded(converted, 3, url, "none"),
        }
        self.sources = Sources(self.planned, 3, tuple(records))
        self.home = home

    def batches(self) -> Iterator[BatchInput]:
        """Run batch after batch; return each one's input."""
        before: Offsets | None = None
        for number in range(100):
            upto = next_offsets(self.planned, before)
            if upto is None:
                return
            yield BatchInput(self.sources, {}, number, before, upto)
            before = upto

    def read(self, stream: str, source: str, unit: str, first: int, last: int | None) -> list[int]:
        """Return the numbers of the rows in a range, as an outside reader reads them."""
        if stream == "landed":
            name, _, number = source.partition("/")
            assert name == source_name(self.landed)
            table = _table(100 * int(number), 40)
        elif unit == "bytes":
            text = Path(source).read_bytes()
            end = len(text) if last is None else last
            begins = [0, *(i + 1 for i, c in enumerate(text) if c == 10)][:-1]
            return [
                json.loads(text[b:].split(b"\n", 1)[0])["n"] for b in begins if first <= b < end
            ]
        elif source.endswith(".arrow"):
            table = pa.ipc.open_file(source).read_all()
        else:
            table = pq.read_table(source)
        numbers: list[int] = table["n"].to_pylist()
        return numbers[first:last]


def test_ranges_of_every_kind_of_source_are_what_tasks_read(url: str, tmp_path: Path) -> None:
    world = _World(url, tmp_path)
    seen: dict[str, list[int]] = {}
    batches = 0
    for read in world.batches():
        batches += 1
        tasks: dict[str, list[int]] = {}
        for share in read.shares():
            for block in read_pieces(share):
                tasks.setdefault(block.stream, []).extend(block.rows["n"].to_pylist())
        ranges: dict[str, list[int]] = {}
        for one in read.ranges():
            found = world.read(one.stream, one.source, one.unit, one.first, one.last)  # type: ignore[arg-type]
            # A range of bytes may have no beginning of a line.
            if found:
                ranges.setdefault(one.stream, []).extend(found)
        assert {n: sorted(r) for n, r in ranges.items()} == {n: sorted(r) for n, r in tasks.items()}
        # Consecutive pieces of one file are one range.
        sources = [(one.stream, one.source) for one in read.ranges()]
        assert len(set(sources)) == len(sources)
        for name, numbers in ranges.items():
            seen.setdefault(name, []).extend(numbers)
    assert batches > 5
    every = [n for number in range(3) for n in range(100 * number, 100 * number + 40)]
    assert seen == {**dict.fromkeys(("arrow", "json", "landed", "parquet"), every),
                    "recorded": list(range(60))}  # fmt: skip
