"""Tests of the registration of many queries from one file: all together, or refused with lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from anabranch_client.cli import batch
from anabranch_client.cli.app import app
from anabranch_client.rest.api import Client
from tests.client.conftest import JOIN

if TYPE_CHECKING:
    from typer.testing import Result


def add(file: Path, *arguments: str, url: str) -> Result:
    variables = {"ANABRANCH_URL": url, "COLUMNS": "160"}
    return CliRunner().invoke(app, ["query", "add", "--file", str(file), *arguments], env=variables)


def registered(shop: Client) -> list[str]:
    return [query.id for query in shop.queries(page=1000)]


def file_of(folder: Path, suffix: str, count: int, bad: tuple[int, ...] = ()) -> Path:
    """Write a file with ``count`` queries ``q0``, ``q1``, ...; the ``bad`` ones name no column."""
    names = [f"q{number}" for number in range(count)]
    sql = [f"{JOIN}\n  WHERE o.{'nope' if n in bad else 'total'} > {n}" for n in range(count)]
    path = folder / f"queries{suffix}"
    if suffix == ".sql":
        text = "\n".join(f"-- name: {name}\n{one};" for name, one in zip(names, sql, strict=True))
    elif suffix == ".jsonl":
        bodies = [{"id": name, "sql": one} for name, one in zip(names, sql, strict=True)]
        text = "\n".join(json.dumps(body) for body in bodies)
    else:
        text = "queries:\n" + "".join(
            f"  {name}:\n    sql: {json.dumps(one)}\n" for name, one in zip(names, sql, strict=True)
        )
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("suffix", "line"), [(".sql", 3 * 17 + 3), (".jsonl", 18), (".yaml", 2 * 17 + 3)]
)
def test_the_bad_one_of_many_is_named(
    suffix: str, line: int, url: str, shop: Client, tmp_path: Path
) -> None:
    file = file_of(tmp_path, suffix, 20, bad=(17,))
    refused = add(file, url=url)
    assert (refused.exit_code, refused.stdout) == (1, "")
    first, text, mark = refused.stderr.splitlines()
    assert f"{file}, line {line}: " in first
    assert "q17.sql" in first
    assert "nope" in text
    assert text[mark.index("^") :].startswith("o.nope")
    assert (f"{line} | " in text) is (suffix == ".sql")
    assert registered(shop) == []
    each = add(file, "--each", "--owner", "web", url=url)
    assert (each.exit_code, each.stdout) == (1, "19 registered, 1 refused\n")
    assert each.stderr == refused.stderr
    assert len(registered(shop)) == 19
    assert {query.owner for query in shop.queries()} == {"web"}


def test_all_that_is_wrong_is_named_and_what_is_there_stays(
    url: str, shop: Client, tmp_path: Path
) -> None:
    shop.create_query(JOIN, name="q1")
    file = file_of(tmp_path, ".sql", 4, bad=(3,))
    refused = add(file, url=url)
    lines = [line for line in refused.stderr.splitlines() if line.startswith("error")]
    assert [line.split(": ")[2] for line in lines] == ["q1.name", "q3.sql"]
    assert "line 5" in lines[0]
    assert all(line.endswith(")") for line in lines), "each has a remedy"
    assert registered(shop) == ["q1"]


def test_a_dry_run_stores_nothing(url: str, shop: Client, tmp_path: Path) -> None:
    file = file_of(tmp_path, ".yaml", 3)
    dry = add(file, "--dry-run", url=url)
    assert (dry.exit_code, dry.stdout) == (0, "3 would be registered\n")
    assert registered(shop) == []
    bad = file_of(tmp_path, ".jsonl", 3, bad=(0,))
    found = add(bad, "--dry-run", "--each", "--json", url=url)
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    assert (document["dry_run"], document["registered"], document["refused"]) == (True, 2, 1)
    assert document["items"][0]["problem"]["code"] == "unknown-column"
    assert document["items"][1]["query"]["id"] == "q1"
    done = json.loads(add(file, "--json", url=url).stdout)
    assert (done["dry_run"], done["registered"], registered(shop)) == (False, 3, ["q0", "q1", "q2"])


def test_more_than_a_request_holds_is_checked_before_any_of_it_is_registered(
    url: str, shop: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MAX_BATCH", 4)
    refused = add(file_of(tmp_path, ".sql", 10, bad=(1, 9)), url=url)
    assert refused.exit_code == 1
    progress = [line for line in refused.stderr.splitlines() if line.startswith("--")]
    assert progress == [f"-- {done} of 10 checked" for done in (4, 8, 10)]
    assert [n in refused.stderr for n in ("q1.sql", "q9.sql", "q2.sql")] == [True, True, False]
    assert registered(shop) == []
    done = add(file_of(tmp_path, ".sql", 10), url=url)
    assert (done.exit_code, done.stdout) == (0, "10 registered\n")
    assert done.stderr.splitlines()[-1] == "-- 10 of 10 registered"
    assert registered(shop) == [f"q{number}" for number in range(10)]


def test_what_is_registered_meanwhile_leaves_the_rest_out_and_it_is_said(
    url: str, shop: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queries with one sink in two requests: only the second request finds the first query."""
    monkeypatch.setattr(batch, "MAX_BATCH", 1)
    file = tmp_path / "two.sql"
    file.write_text(f"{JOIN};\n{JOIN};")
    options = ("--sink-format", "redis-stream", "--sink-option", "stream=found")
    refused = add(file, *options, url=url)
    assert refused.exit_code == 1
    first, second = (one for one in refused.stderr.splitlines() if one.startswith("error"))
    assert "1 of 2 queries are registered" in first
    assert "line 2: statement 2.sink" in second
    assert len(registered(shop)) == 1


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("q.sql", f"-- name: a\n{JOIN};\n-- name: a\n{JOIN}", "line 4: a.name: line 2 has"),
        ("q.jsonl", '{"id": "a", "sql": "x"}\n\n{"id": "a"}', "line 3: a.name: line 1 has"),
        ("q.jsonl", '{"id": "a"\n[]', "line 1"),
        ("q.jsonl", '{"id": "a", "id": "b"}', "more than once"),
        ("q.yaml", "queries:\n  a: {}\n  a: {}", "line 3"),
        ("q.jsonl", "\n", "declares no queries"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_its_line(
    name: str, text: str, told: str, url: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    refused = add(file, url=url)
    assert refused.exit_code == 2
    assert f"{file}" in refused.stderr
    assert told in refused.stderr


def test_one_statement_is_added_as_before(url: str, shop: Client, tmp_path: Path) -> None:
    file = tmp_path / "one.sql"
    file.write_text(f"{JOIN};")
    assert add(file, "--name", "one", url=url).exit_code == 0
    assert add(file, "--dry-run", url=url).exit_code == 0
    file.write_text(f"-- name: two\n{JOIN}")
    assert add(file, "--name", "three", url=url).exit_code == 2
    assert add(file, url=url).stdout == "1 registered\n"
    assert registered(shop) == ["one", "two"]


def test_a_dry_run_of_one_statement_checks_it(url: str, shop: Client, tmp_path: Path) -> None:
    file = tmp_path / "one.sql"
    file.write_bytes(b"\xef\xbb\xbf" + JOIN.encode() + b";\r\n")
    for arguments in (["--dry-run"], ["--dry-run", "--name", "joined"]):
        dry = add(file, *arguments, url=url)
        assert (dry.exit_code, dry.stdout) == (0, "1 would be registered\n"), dry.stderr
    assert registered(shop) == []
    file.write_bytes(JOIN.encode("utf-16"))
    refused = add(file, "--dry-run", url=url)
    assert refused.exit_code == 2
    assert "UTF-8" in refused.stderr
    file.write_text(JOIN)
    assert add(file, "--each", "--name", "joined", url=url).stdout == "1 registered\n"
    assert registered(shop) == ["joined"]
