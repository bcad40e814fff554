"""Compare results of many different queries, and the predicate sets of stored rows, with a slow
interpreter: through revisions, kills, and changing hosts.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from anabranch_contract.queries.expressions import columns
from anabranch_contract.queries.joins import Stream
from anabranch_planner.passes import parse_sql
from anabranch_runtime.tags import arrival_sets, predicates
from anabranch_runtime.tags.arrival_sets import Moment
from anabranch_runtime.tags.predicates import UNKNOWN, PredicateIndex, TaggedTable
from tests.support.oracles.history import History, record
from tests.support.oracles.tag_sets import interpret_by_tags, tag_set
from tests.support.plain_service import stream_of
from tests.support.scenarios.crowded import befallen, generate_different, kind_of
from tests.support.scenarios.draw import Generated
from tests.support.scenarios.file import Scenario, read_scenario
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.local_replay import LocalReplay

#: Seeds whose streams have no ttls, do not keep the latest row and have no deletes. 63 has
#: revisions before all batches, up to four hosts, failing tasks and killed drivers.
PLAIN = [63, *(n for n in range(300) if kind_of(n) == "plain" and n % 25 != 24 and n != 63)]


class Sets:
    """Compares the predicate set of every row of a prepared table with the interpreter's."""

    def __init__(self) -> None:
        self.events = Counter[str]()
        self._prepare = PredicateIndex.prepare

    def prepare(
        self,
        index: PredicateIndex,
        table: TaggedTable,
        name: str,
        prefix: str,
        moment: Moment | None,
    ) -> None:
        """Compare sets; called in place of ``PredicateIndex.prepare``."""
        again = name in table.derived
        self._prepare(index, table, name, prefix, moment)
        made = table.derived[name]
        predicates = list(index._numbers)[: made.version]
        values = dict[str, list[Any]]()
        for column in {c for conditions in predicates for e in conditions for c in columns(e)}:
            with suppress(KeyError):
                values[column.name] = _plain(table.column(f"{prefix}{column.name}"))
        # Conditions on columns that a joined store lacks count as holding.
        tested = [
            [e for e in conditions if all(c.name in values for c in columns(e))]
            for conditions in predicates
        ]
        self.events["narrow"] += tested != [list(conditions) for conditions in predicates]
        assert not index.overflowed
        assert UNKNOWN not in made.values
        words = len(predicates) // 64 + 1
        for row, bits in enumerate(index.met.bits(made.values, words).tolist()):
            number = sum(word << 64 * at for at, word in enumerate(bits))
            found = {n for n in range(len(predicates)) if number >> n & 1}
            expected = tag_set(tested, {c: v[row] for c, v in values.items()})
            assert found == expected, (name, row, found ^ expected)
        self.events["extended" if again else "new"] += table.rows


def _plain(values: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    found: list[Any] = values.to_pylist()
    return found


def history_of(scenario: Scenario, streams: list[Stream]) -> History:
    """Return the recorded rows by batch."""
    cuts = {name: [0, *(entry.cuts or ())] for name, entry in scenario.streams.items()}
    rows = {}
    for name, entry in scenario.streams.items():
        table = pq.read_table(entry.path)
        times = pc.cast(table["ts"], pa.timestamp("us")).cast(pa.int64())
        rows[name] = table.set_column(table.column_names.index("ts"), "ts", times).to_pylist()
    batches = [
        {name: rows[name][c[batch] : c[batch + 1]] for name, c in cuts.items()}
        for batch in range(max(map(len, cuts.values())) - 1)
    ]
    return record(streams, batches)


@pytest.mark.parametrize("seed", mostly_slow(PLAIN))
def test_results_and_sets_of_rows_are_those_of_the_interpreter(
    seed: int, redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = generate_different(seed, tmp_path)
    script = replace(
        befallen(seed, generated), rationed=frozenset(), owed=frozenset(), relaxed=True
    )
    script = replace(script, past=frozenset())
    sets = Sets()
    # So few that some sets are forgotten, and so that new sets are computed in pieces.
    monkeypatch.setattr(arrival_sets, "MOST", 1 << 6)
    monkeypatch.setattr(arrival_sets, "_FIRST", 1 << 7)
    monkeypatch.setattr(predicates, "_PIECE", 16)
    monkeypatch.setattr(PredicateIndex, "prepare", lambda *arguments: sets.prepare(*arguments))
    replay = LocalReplay(generated.path, tmp_path / "out", redis, script=script)
    activations = replay.run()
    assert sets.events["new"] > 100
    compare(generated, tmp_path / "out" / "results", activations)


def compare(generated: Generated, results: Path, activations: Any) -> None:
    """Compare results with the interpreter's."""
    scenario = read_scenario(generated.path)
    streams = [stream_of(scenario, name) for name in sorted(scenario.streams)]
    by_name = {str(s.name): s for s in streams}
    queries = [parse_sql(n, q.sql, by_name, q.window) for n, q in scenario.queries.items()]
    found = interpret_by_tags(queries, history_of(scenario, streams), activations)
    total = 0
    for query in queries:
        files = [pq.read_table(f) for f in sorted((results / query.id).glob("*.parquet"))]
        got = Counter[tuple[Any, ...]]()
        for table in files:
            got.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert got == found[query.id], query.id
        total += got.total()
    assert total > 10 * len(queries)
