"""Tests of splitting CSV text into records and fields."""

from __future__ import annotations

import csv
import io
import random
from array import array
from itertools import pairwise

import pytest

from anabranch_contract.connectors.csv_text import (
    MALFORMED,
    CsvDialect,
    header_of,
    positions,
    records,
    room,
    scan,
)


@pytest.mark.parametrize("seed", range(100))
def test_the_scanner_divides_as_pythons_csv_module_does(seed: int) -> None:
    chance = random.Random(seed)
    parts = ["a", '"', ",", "\n", "\r", "b", " ", "é", ""]
    rows = [
        ["".join(chance.choices(parts, k=chance.randrange(5))) for _ in range(chance.randint(1, 3))]
        for _ in range(chance.randrange(5))
    ]
    written = io.StringIO()
    end = chance.choice(["\n", "\r\n", "\r"])
    csv.writer(written, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    dialect = CsvDialect()
    found = [
        [dialect.text(content.decode(), mark, textual=True) or "" for content, mark in r.fields]
        for r in records(written.getvalue().encode(), dialect)
    ]
    assert found == rows


@pytest.mark.parametrize("seed", range(60))
def test_parts_that_end_where_records_do_are_divided_as_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    signs = [b'"', b'"', b",", b"\n", b"\r\n", b"a", b"\\", b" ", b"#"]
    data = b"".join(chance.choices(signs, k=60))
    dialect = CsvDialect(
        escape=chance.choice(['"', "\\", ""]),
        comment=chance.choice(["", "#"]),
        multiline=chance.random() < 0.7,
    )
    whole = [record.raw for record in records(data, dialect)]
    lines, fields = room(data, dialect.codes[0])
    starts, stops, marks = (array("q", bytes(8 * fields)) for _ in range(3))
    firsts, bounds = array("q", bytes(8 * (lines + 1))), array("q", bytes(16 * lines))
    given = (*dialect.codes, starts, stops, marks, firsts, bounds)
    count, end = scan(data, 0, len(data), True, lines, *given)
    assert (count, end) == (len(whole), len(data))
    begins = [*bounds[0 : 2 * count : 2], len(data)]
    assert [r.raw for a, b in pairwise(begins) for r in records(data[a:b], dialect)] == whole
    # A record that reaches the end of a chunk is left, and found when there is more text.
    at, found, room_for = 0, [], 1
    while at < len(data):
        end = min(at + room_for, len(data))
        count, after = scan(data, at, end, end == len(data), lines, *given)
        found += [data[bounds[2 * i] : bounds[2 * i + 1]] for i in range(count)]
        room_for = 1 if after > at else room_for + 1
        at = after
    assert found == whole


def test_a_header_names_columns_in_any_order_and_case() -> None:
    header = next(records(b' "x",ID, Name ,"a ""b"""\n', CsvDialect()))
    names = header_of(header, CsvDialect())
    assert names == [' "x"', "ID", " Name ", 'a "b"']
    assert positions(names, ["name", 'a "b"', "id", "y"]) == {"name": 2, 'a "b"': 3, "id": 1}
    with pytest.raises(ValueError, match="more than once"):
        positions(["a", "A", "a"], ["a"])
    with pytest.raises(ValueError, match="more than once"):
        positions(["ID", "Id"], ["id"])
    assert positions(["A", "a"], ["a"]) == {"a": 1}
    (broken,) = records(b'a,"b', CsvDialect())
    assert broken.fields[-1] == (b'"b', MALFORMED)
    with pytest.raises(ValueError, match="not closed"):
        header_of(broken, CsvDialect())
