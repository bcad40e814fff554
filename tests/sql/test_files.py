"""Tests of the statements of docs/sql.md: run continuously over random rows with deletes, they
equal DuckDB after every batch, and the files' results at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sql import rows as rows_of
from tests.sql.files import DIALECTS, DOMAINS, Block, examples, files, read
from tests.sql.rows import PATTERNS, headings, rows_below
from tests.sql.run import Written
from tests.support.documents.pages import ROOT
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.redis import redis_url

#: Seed of the rows from which the results in the files are made.
SEED = 1
_ALL = [*files(), *files(DOMAINS), *files(DIALECTS)]
#: Files with many statements, whose answers ``make test-e2e`` compares.
LONG = {"conditions", "expansions", "frames", "layers", "subqueries", "airline"}


def _case(path: Path) -> object:
    return pytest.param(path, marks=pytest.mark.e2e) if path.stem in LONG else path


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """Address of a Redis server for the module."""
    with redis_url() as url:
        yield url


@pytest.mark.parametrize(
    "path",
    [
        *map(_case, [*files(), *files(DIALECTS), *files(DOMAINS)[:2]]),
        *mostly_slow(files(DOMAINS)[2:], 0),
    ],
    ids=lambda path: path.stem,
)
def test_answers_are_as_written(path: Path, tmp_path: Path, redis: str) -> None:
    blocks = read(path)
    run = Written(tmp_path, redis, SEED, blocks)
    run.play()
    wrong = [
        (block.sql, block.answer, found.answer)
        for block, found in zip(blocks, run.answers(), strict=True)
        if block != found
    ]
    assert wrong == [], "python -m tests.sql fills the answers"
    assert run.events["compared"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 40))
@pytest.mark.parametrize("path", _ALL, ids=lambda path: path.stem)
def test_answers_over_other_rows_are_those_of_duckdb(
    path: Path, seed: int, tmp_path: Path, redis: str
) -> None:
    Written(tmp_path, redis, seed, read(path)).play()


def test_few_answers_are_empty() -> None:
    queries = [block for path in _ALL for block in read(path) if block.kind == "query"]
    empty = [block.sql for block in queries if not block.answer]
    assert len(empty) <= len(queries) / 20, empty


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_every_row_of_the_documentation_has_examples(path: Path) -> None:
    rows = examples(path)
    assert rows
    for row, statements in rows:
        kinds = {block.kind for block in statements}
        assert kinds >= ({"query"} if row.sql else set()), row
        assert kinds >= ({"refused"} if row.answer else set()), row


@pytest.mark.parametrize("heading", PATTERNS)
def test_every_row_of_other_tables_has_an_example(heading: str) -> None:
    kind = "refused" if heading == "Errors" else "query"
    statements = [block.sql for path in _ALL for block in read(path) if block.kind == kind]
    rows, patterns = rows_below(heading), PATTERNS[heading]
    assert len(rows) == len(patterns), "add a pattern for each row, and an example"
    for row, pattern in zip(rows, patterns, strict=True):
        assert any(re.search(pattern, sql, re.IGNORECASE) for sql in statements), (row, pattern)


def test_every_refusal_has_a_code_a_message_and_a_remedy() -> None:
    for block in (block for path in _ALL for block in read(path) if block.kind == "refused"):
        said, remedy = block.answer
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*: .+", said), block.sql
        assert re.fullmatch(r"remedy: .+", remedy), block.sql


def test_every_row_of_other_dialects_is_translated_and_run_or_refused() -> None:
    blocks = [block for path in files(DIALECTS) for block in read(path)]
    rows = rows_below("Other dialects")
    assert len(rows) == len(rows_of.DIALECTS), "add patterns for each row, and examples"
    for row, patterns in zip(rows, rows_of.DIALECTS, strict=True):
        # A row without a translation has an empty second cell.
        assert (patterns[0] == "") == (re.search(r"^\|[^|]+\| \|", row) is not None), row
        for kind, pattern in zip(("query", "refused"), patterns, strict=True):
            said = [f"{b.dialect}: {b.sql}" for b in blocks if b.kind == kind and b.dialect]
            assert any(re.search(pattern, one, re.IGNORECASE) for one in said), (row, kind)


def test_every_table_of_the_page_has_examples() -> None:
    tables = headings()
    assert tables - PATTERNS.keys() == {
        # Made from the files; with patterns of their own; plans, which are not run.
        "Queries that run", "Statements of the tests", "Other dialects",
        "Conversion of plans (TSC)",
    }  # fmt: skip
    assert PATTERNS.keys() <= tables


def test_the_page_names_the_number_of_statements_of_domains() -> None:
    domains = files(DOMAINS)
    count = sum(block.kind in ("query", "refused") for path in domains for block in read(path))
    text = (ROOT / "docs" / "sql.md").read_text("utf-8")
    found = re.search(r"Tests run (\d+) everyday statements of (\w+) domains", text)
    assert found is not None
    names = ("five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    assert (int(found[1]), names.index(found[2]) + 5) == (count, len(domains))


def test_blocks_are_written_as_they_are_read(tmp_path: Path) -> None:
    for path in _ALL:
        again = "\n\n".join(block.text() for block in read(path)) + "\n"
        assert again == path.read_text(encoding="utf-8")
    (tmp_path / "x.slt").write_text("statement ok\nSELECT 1")
    with pytest.raises(ValueError, match="begins no block"):
        read(tmp_path / "x.slt")
    assert Block("query", "S", "D", ("1",)).text() == "query\nS\nduckdb\nD\n----\n1"
