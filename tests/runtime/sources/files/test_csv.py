"""Tests of CSV files: every record is a row, or invalid by itself, however the file is divided."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.connectors.csv_text import CsvDialect
from anabranch_contract.errors import StreamError
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.files import text
from anabranch_runtime.sources.files.csv import MissingColumn
from anabranch_runtime.sources.files.feed import FileFeed, file_feed
from anabranch_service.streaming.samples.fit import fit
from anabranch_service.streaming.samples.take import take
from tests.support.cases.csv_files import CsvCase
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.policy import OPEN

Columns = tuple[tuple[str, str], ...]


def feed(home: Path, columns: Columns, options: dict[str, str], spark: str = "") -> FileFeed:
    (home / "in").mkdir(exist_ok=True)
    record = StreamRecord(
        name="s",
        columns=tuple(ColumnRecord(name=c, type=t) for c, t in columns),
        source=SourceRecord(format=spark or "files", path=str(home / "in"), options=options),
    )
    return file_feed(record, str(home / "state"), OPEN)


def read(source: FileFeed, chance: random.Random) -> tuple[list[tuple[Any, ...]], list[bytes]]:
    """Return all rows, and the invalid records, read in random batches and parts."""
    rows: list[tuple[Any, ...]] = []
    invalid: list[bytes] = []
    offset: Any = None
    while source.waiting(offset).rows:
        end = source.advance(offset, chance.choice([1, 2, 5, 1000]))
        assert end != offset
        for piece in source.pieces(offset, end, chance.choice([1, 2, 7])):
            for good, bad in read_piece(piece):
                rows += zip(*map(plain, good.columns), strict=True)
                invalid += [] if bad is None else bad.column("#arrived").to_pylist()
        offset = json.loads(json.dumps(end))
    return rows, invalid


def plain(column: pa.Array) -> list[Any]:
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def bag(rows: list[Any]) -> Counter[str]:
    return Counter(map(repr, rows))


@pytest.mark.parametrize("seed", mostly_slow(range(150), 40))
def test_random_files_are_read_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(text, "CHUNK", chance.choice([3, 40, 1 << 20]))
    case = CsvCase(chance, spark=chance.random() < 0.4)
    source = feed(tmp_path, case.columns, case.options, "csv" if case.spark else "")
    (tmp_path / "in" / "a.csv").write_bytes(case.content)
    rows, invalid = read(source, chance)
    assert bag(rows) == bag(case.rows)
    assert sorted(invalid) == sorted(case.invalid)
    # A source test reports the same for the first rows.
    given = SourceRecord(
        format="csv" if case.spark else "files", path=str(tmp_path / "in"), options=case.options
    )
    sample = take(given, [c for c, _ in case.columns], 200, OPEN, ("", ""))
    found = fit(sample.rows, [(c, parse_type(t)) for c, t in case.columns], None, sample.form)
    assert len(found.rows) - len(found.invalid) == len(case.rows)
    assert len(found.invalid) == len(case.invalid)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_columns_are_found_by_name_and_one_that_lacks_is_an_error(
    tmp_path: Path, pack: Any
) -> None:
    columns = (("id", "bigint"), ("s", "string"))
    source = feed(tmp_path, columns, {"type": "csv"})
    (tmp_path / "in" / "1.csv").write_bytes(pack(b'\xef\xbb\xbf"s",x,ID\r\n"a ""b""",,1\r\n"",,2'))
    rows, invalid = read(source, random.Random(1))
    assert (rows, invalid) == ([(1, 'a "b"'), (2, "")], [])
    (tmp_path / "in" / "2.csv").write_bytes(pack(b"id,t\n3,c\n"))
    with pytest.raises(SourceError, match=r"2\.csv has no column 's'; it has id, t") as caught:
        read(feed(tmp_path, columns, {"type": "csv", "pattern": "2*"}), random.Random(1))
    assert caught.value.code == "missing-column"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("id,s\n1,a\n".encode("utf-16"), "UTF-16"),
        ("id,s\n1,a\n".encode("utf-16-le"), "UTF-16"),
        (b"id,id,s\n1,2,3\n", "more than once"),
        (b'id,"s\n1,a\n', "not closed"),
    ],
)
def test_files_that_are_no_csv_are_named(tmp_path: Path, content: bytes, why: str) -> None:
    source = feed(tmp_path, (("id", "bigint"), ("s", "string")), {"type": "csv"})
    (tmp_path / "in" / "1.csv").write_bytes(content)
    with pytest.raises(SourceError, match=why) as caught:
        source.waiting(None)
    assert "1.csv" in caught.value.message
    assert caught.value.remedy


def test_sparks_escape_is_read_where_it_is_one(tmp_path: Path) -> None:
    columns = (("id", "bigint"), ("s", "string"))
    source = feed(tmp_path, columns, {}, "csv")
    lines = [r'1,"a \"b\", c"', r"2,a\b", r'3,"C:\\"', '4,"a ""b"""', '5,""', "6,"]
    (tmp_path / "in" / "1.csv").write_text("\n".join(lines))
    rows, invalid = read(source, random.Random(1))
    texts = ['a "b", c', r"a\b", "C:\\", 'a "b"', None, None]
    assert rows == list(enumerate(texts, 1))
    assert not invalid


def test_a_quote_that_is_not_closed_costs_its_line_alone(tmp_path: Path) -> None:
    columns = (("id", "bigint"), ("s", "string"))
    source = feed(tmp_path, columns, {"type": "csv"})
    lines = ["id,s", "1,a", '2,"b', '3,"c\nd"', "4,e", '5,"f']
    (tmp_path / "in" / "1.csv").write_text("\n".join(lines))
    rows, invalid = read(source, random.Random(2))
    assert rows == [(1, "a"), (3, "c\nd"), (4, "e")]
    assert invalid == [b'2,"b', b'5,"f']


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_that_goes_when_it_has_been_planned_is_an_error(tmp_path: Path, kind: str) -> None:
    source = feed(tmp_path, (("id", "bigint"),), {"type": kind})
    lines = [str(n) if kind == "csv" else json.dumps({"id": n}) for n in range(50)]
    path = tmp_path / "in" / "1"
    path.write_text("\n".join(["id", *lines] if kind == "csv" else lines))
    assert source.waiting(None).rows
    end = source.advance(None, 20)
    path.unlink()
    with pytest.raises(SourceError, match="was removed"):
        source.advance(end, 20)
    pieces = source.pieces(None, end, 4)
    with pytest.raises(SourceError, match="was removed"):
        list(read_piece(pieces[0]))


def test_options_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    for options, why in (
        ({"sep": "ab"}, "not a single ASCII character"),
        ({"sep": '"'}, "different characters"),
        ({"header": "maybe"}, "neither true nor false"),
        ({"encoding": "latin1"}, "read as UTF-8"),
        ({"dateFormat": "dd"}, "no option 'dateFormat'"),
    ):
        with pytest.raises(StreamError, match=why):
            feed(tmp_path, (("id", "bigint"),), {"type": "csv", **options})
    with pytest.raises(StreamError, match="no option 'header'"):
        feed(tmp_path, (("id", "bigint"),), {"type": "parquet", "header": "true"})


def test_json_lines_of_all_kinds_are_rows_or_invalid(tmp_path: Path) -> None:
    source = feed(tmp_path, (("id", "bigint"), ("s", "string")), {}, "json")
    lines = [b'\xef\xbb\xbf{"id": 1, "s": "a"}', b'{"id": null, "s": "b"}', b'{"id": "x"}', b""]
    lines += [b'{"s": "c", "more": [1]}', b'{"id": 4, "s": "\xff"}', b'{"id": 5, "s": "torn']
    (tmp_path / "in" / "1.json").write_bytes(b"\r\n".join(lines))
    rows, invalid = read(source, random.Random(1))
    assert bag(rows) == bag([(1, "a"), (None, "b"), (None, "c")])
    assert [line.strip() for line in sorted(invalid)] == sorted([lines[2], lines[5], lines[6]])
    (tmp_path / "in" / "2.json").write_bytes('{"id": 1}'.encode("utf-16"))
    with pytest.raises(SourceError, match="only UTF-8 is read"):
        read(feed(tmp_path, (("id", "bigint"),), {"pathGlobFilter": "2*"}, "json"), random.Random())


def test_an_added_column_is_null_where_the_header_lacks_it(tmp_path: Path) -> None:
    path = tmp_path / "before.csv"
    path.write_text("b,a\n1,x\n2,y\n")
    columns = (("a", "string"), ("added", "decimal(4,2)"), ("b", "bigint"))
    file = text.TextFile(path, path.stat().st_size, CsvDialect(), optional=frozenset({"added"}))
    assert file.density(columns) > 0
    ((rows, invalid),) = file.rows(columns, 0, None)
    assert invalid is None
    assert rows.to_pydict() == {"a": ["x", "y"], "added": [None, None], "b": [1, 2]}
    with pytest.raises(MissingColumn):
        text.TextFile(path, path.stat().st_size, CsvDialect()).density(columns)
