"""Tests of reading text files as editors save them, and of refusals of other encodings."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_client.cli.batch import has_several
from anabranch_client.declared.declaration import read_declaration
from anabranch_client.errors import ScenarioError, UsageError
from anabranch_client.replay.document import read_yaml
from anabranch_client.rest.push import rows_of
from anabranch_client.texts import read_utf8

SQL = "SELECT a.x AS x FROM a JOIN b ON a.k = b.k WHERE a.s <> 'é;'"


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", codec="utf-8"))),
    mark=st.booleans(),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_mark_and_line_ends_are_no_part_of_a_text(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], mark: bool, end: str
) -> None:
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    path.write_bytes((codecs.BOM_UTF8 if mark else b"") + end.join(lines).encode())
    assert read_utf8(path) == "\n".join(lines)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "latin-1"])
def test_other_encodings_are_refused_naming_utf8(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.sql"
    mark = {"utf-16-be": codecs.BOM_UTF16_BE}.get(encoding, b"")
    path.write_bytes(mark + SQL.encode(encoding))
    with pytest.raises(UsageError, match="UTF-8") as refused:
        read_utf8(path, "--file")
    assert refused.value.field == "--file"
    assert refused.value.remedy == "save it as UTF-8, and try again"
    with pytest.raises(ScenarioError, match="UTF-8"):
        read_yaml(path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_declarations_are_read_with_and_without_a_mark(
    tmp_path: Path, mark: bytes, end: str
) -> None:
    texts = {
        "two.sql": f"-- name: q1{end}{SQL};{end}-- name: q2{end}{SQL}",
        "two.yaml": f'queries:{end}  q1: {{sql: "{SQL}"}}{end}  q2: {{sql: "{SQL}"}}{end}',
        "two.jsonl": f'{{"id": "q1", "sql": "{SQL}"}}{end}{{"id": "q2", "sql": "{SQL}"}}',
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.write_bytes(mark + text.encode())
        assert has_several(path)
        found = read_declaration(path)
        assert [(q.name, q.body["sql"]) for q in found.queries] == [("q1", SQL), ("q2", SQL)]


def test_pushed_rows_are_read_with_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b'{"a": 1}\r\n{"a": 2}')
    with path.open(encoding="utf-8") as standard_input:
        assert list(rows_of("-", standard_input)) == [[{"a": 1}, {"a": 2}]]
        assert list(rows_of(str(path), standard_input)) == [[{"a": 1}, {"a": 2}]]
