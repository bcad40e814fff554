"""Tests of result files as tables: any range of batches, merged or not, has the written rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.connectors.sources import BATCHES
from anabranch_service.tables.child import listed
from anabranch_service.tables.current import TableKind, TableSpec, schema_of, table_sql
from anabranch_service.tables.files import ResultFiles, TableError

Row = tuple[object, ...]
NAN = float("nan")
COLUMNS = (("k", "bigint"), ("x", "double"), ("s", "string"), ("l", "array<int>"))
CHANGES = (*COLUMNS, ("anabranch_change", "string"))


def write(path: Path, spec: TableSpec, rows: list[Row], batches: object = None) -> None:
    path.parent.mkdir(exist_ok=True)
    schema = schema_of(spec.changed)
    names = schema.names
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)
    notes = None if batches is None else {BATCHES: json.dumps(batches).encode()}
    pq.write_table(table.replace_schema_metadata(notes), path, row_group_size=3)


def read(results: Path, spec: TableSpec) -> list[Row]:
    pieces = listed(results, spec.run).pieces(spec.after, spec.upto)
    if not pieces:
        return []
    with duckdb.connect() as connection:
        return connection.execute(table_sql(spec, pieces)).fetchall()


def key(row: Iterable[object]) -> str:
    """Return a row with NaN and NULL as texts, for comparison."""
    return repr([*row])


def value(chance: random.Random) -> Row:
    x = chance.choice([None, NAN, 1.5, -0.0])
    return chance.randint(0, 2), x, chance.choice([None, "", "é'\""]), chance.choice([None, [1]])


def merged(
    folder: Path, spec: TableSpec, chance: random.Random, rows: dict[int, list[Row]]
) -> None:
    """Write files of one batch, of several tasks, and merged ones, in the order of batches."""
    files: list[list[tuple[int, list[Row]]]] = []
    for batch, some in sorted(rows.items()):
        cut = chance.randint(0, len(some))
        for part in (some[:cut], some[cut:]) if chance.random() < 0.4 else (some,):
            if files and chance.random() < 0.5:
                files[-1].append((batch, part))
            else:
                files.append([(batch, part)])
    for number, parts in enumerate(files):
        last, flat = parts[-1][0], [row for _, part in parts for row in part]
        notes = [(batch, len(part)) for batch, part in parts] if len(parts) > 1 else None
        write(folder / f"{last:010d}-{number:05d}.parquet", spec, flat, notes)


@pytest.mark.parametrize("seed", range(6))
def test_ranges_of_batches(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    spec = TableSpec("q", TableKind.RESULTS, COLUMNS, COLUMNS)
    written = {
        batch: [value(chance) for _ in range(chance.randint(1, 7))]
        for batch in sorted(chance.sample(range(14), 9))
    }
    merged(tmp_path / "q", spec, chance, written)
    bounds = [-2, *sorted(chance.sample(range(-1, 15), 5)), 20]
    for after, upto in [*pairwise(bounds), (-2, 20), (-2, bounds[2]), (bounds[3], 20)]:
        expected = [r for b, some in written.items() if after < b <= upto for r in some]
        found = read(tmp_path, replace(spec, after=after, upto=upto))
        assert [*map(key, found)] == [*map(key, expected)]


@pytest.mark.parametrize("seed", range(6))
def test_changes_of_equal_rows(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    spec = TableSpec("q", TableKind.CHANGES, COLUMNS, CHANGES)
    written: dict[int, list[Row]] = {}
    for batch in range(10):
        some = [(*value(chance), chance.choice(["insert", "insert", "delete"])) for _ in range(9)]
        written[batch] = some
    merged(tmp_path / "q", spec, chance, written)
    for upto in (-1, 0, 4, 9):
        net: Counter[str] = Counter()
        for batch, some in written.items():
            for *row, change in some if batch <= upto else ():
                net[key(row)] += 1 if change == "insert" else -1
        found = Counter(key(row) for row in read(tmp_path, replace(spec, upto=upto)))
        assert found == Counter({text: n for text, n in net.items() if n > 0})
    raw = replace(spec, after=3, upto=6, raw=True)
    assert [*map(key, read(tmp_path, raw))] == [key(r) for b in (4, 5, 6) for r in written[b]]


@pytest.mark.parametrize("seed", range(6))
def test_versions_of_a_view(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    output = (("n", "bigint"), ("s", "string"))
    changed = (*output, ("k", "bigint"), *CHANGES[-1:], ("anabranch_version", "bigint"))
    identity = ("s", "k") if seed % 3 else ()
    spec = TableSpec("v", TableKind.VIEW, output, changed, identity)
    kept: dict[Row, Row] = {}
    states: dict[int, list[Row]] = {-1: [] if identity else [(0, None)]}
    folder = tmp_path / "v"
    if not identity:
        kept[()] = (0, None)
        first: list[Row] = [(0, None, None, "upsert", 0)]
        write(folder / "version-0000000000.parquet", spec, first)
    for batch in sorted(chance.sample(range(12), 8)):
        some = list[Row]()
        for _ in range(chance.randint(1, 4)):
            s, k = chance.choice([None, "a", "b"]), chance.choice([None, 1, 2])
            of: Row = (s, k) if identity else ()
            if any((row[1], row[2]) == (s, k) for row in some) or (some and not identity):
                continue
            if of in kept and identity and chance.random() < 0.4:
                del kept[of]
                some.append((None, s, k, "delete", batch + 1))
            else:
                kept[of] = (batch, s)
                some.append((batch, s, k, "upsert", batch + 1))
        write(folder / f"version-{batch + 1:010d}.parquet", spec, some)
        states[batch] = [*kept.values()]
    for upto in range(-1, 13):
        newest = max(batch for batch in states if batch <= upto)
        expected = Counter(states[newest])
        assert Counter(read(tmp_path, replace(spec, upto=upto))) == expected


def test_a_folder_in_which_files_are_replaced(tmp_path: Path) -> None:
    spec = TableSpec("q", TableKind.RESULTS, COLUMNS, COLUMNS)
    write(tmp_path / "q" / "0000000003-00000.parquet", spec, [value(random.Random(1))])
    home = tmp_path / ".merging" / "q"
    home.mkdir(parents=True)
    ready = home / "0000000001-00000..0000000003-00000.parquet"
    ready.touch()
    assert not ResultFiles.of(tmp_path, "q").is_settled
    with pytest.raises(TableError) as refused:
        listed(tmp_path, "q")
    assert refused.value.code == "files-replaced"
    ready.unlink()
    before = listed(tmp_path, "q")
    assert before.newest == 3
    assert before.rows() == 1
    (tmp_path / "q" / "other.parquet").touch()
    (tmp_path / "q" / "0000000003-00000.parquet").rename(tmp_path / "q" / "gone")
    with pytest.raises(TableError, match="was replaced"):
        before.pieces(-2, 2)
    assert not ResultFiles.of(tmp_path, "q").marks >= before.marks
