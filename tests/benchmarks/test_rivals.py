"""Tests of the comparison with other engines on Nexmark: input, statements, changes and pages, and
Flink if installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.nexmark import report
from benchmarks.nexmark.generator import Events, generate
from benchmarks.nexmark.statements import JOINS, Nexmark
from benchmarks.nexmark.together import Input
from benchmarks.oracle import Oracle
from benchmarks.report.figures import ROOT
from benchmarks.report.targets import Verdict
from benchmarks.rivals import nexmark
from benchmarks.rivals.environment import Environment, RivalError
from benchmarks.rivals.flink import statements
from benchmarks.rivals.flink.engine import (
    ENVIRONMENT,
    Job,
    Jvm,
    Mode,
    usage,
    write_input,
)
from benchmarks.rivals.nexmark import Cost, Flink, answer_of
from benchmarks.session import WrongResultError

_QUERIES = {query.name: query for query in JOINS}


@pytest.fixture(scope="module")
def streams() -> dict[str, Events]:
    return generate(5000, rate=1000.0)


def test_flink_has_every_join_query_and_all_columns(streams: dict[str, Events]) -> None:
    assert list(statements.QUERIES) == list(_QUERIES)
    made = statements.tables({name: Path("/input") / name for name in statements.STREAMS})
    assert list(made) == [*statements.STREAMS, "side_input"]
    for name in statements.STREAMS:
        columns = re.findall(r"(\w+) (?:BIGINT|STRING|TIMESTAMP\(3\))", made[name])
        assert columns == streams[name].table.column_names
        assert f"'/input/{name}'" in made[name]


def test_input_is_dealt_to_files_in_order(streams: dict[str, Events], tmp_path: Path) -> None:
    tables = {name: streams[name].table for name in statements.STREAMS}
    write_input(tables, tmp_path, files=2, part=0.1)
    for name in statements.STREAMS:
        wanted = streams[name].table.slice(0, streams[name].table.num_rows // 10)
        parts = [pq.read_table(tmp_path / name / f"{number}.parquet") for number in range(2)]
        assert [part.num_rows for part in parts] == [
            (wanted.num_rows + 1) // 2,
            wanted.num_rows // 2,
        ]
        together = pa.concat_tables(parts).sort_by("date_time")
        assert together.equals(wanted)


def _written(
    folder: Path, rows: Sequence[Sequence[Any]], kinds: Sequence[str], number: int = 0
) -> None:
    """Write changes as Flink's sink does; ``number``: of the subtask's file."""
    columns = [*zip(*rows, strict=True), kinds]
    (folder / "day").mkdir(parents=True, exist_ok=True)
    table = pa.table({f"c{place}": list(column) for place, column in enumerate(columns)})
    pq.write_table(table, folder / "day" / f"part-1f-{number}")


def _tables(streams: Mapping[str, Events]) -> dict[str, pa.Table]:
    return {name: one.table for name, one in streams.items()}


def _answer(streams: Mapping[str, Events], query: Nexmark) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, one in streams.items():
            connection.register(name, one.table)
        return [tuple(row) for row in connection.execute(query.oracle).fetchall()]


def test_changes_sum_up_to_an_answer(streams: dict[str, Events], tmp_path: Path) -> None:
    query, oracle = _QUERIES["q3"], Oracle(_tables(streams))
    answer = _answer(streams, query)
    assert len(answer) > 2
    wrong = ("nobody", "nowhere", "OR", 7)
    kinds = ["+I", "-U", *["+U"] * len(answer)]
    _written(tmp_path / "q3", [wrong, wrong, *answer], kinds)
    assert oracle.compare(
        query.name, query.oracle, answer_of(oracle, query, tmp_path / "q3")
    ) == len(answer)
    for name, rows, change, text in (
        ("missing", answer[1:], ["+I"] * (len(answer) - 1), "1 rows missing, 0 too many"),
        ("surplus", [*answer, wrong], ["+I"] * (len(answer) + 1), "0 rows missing, 1 too many"),
        ("deleted", [*answer, answer[0]], [*["+I"] * len(answer), "-D"], "1 rows missing"),
    ):
        _written(tmp_path / name, rows, change)
        with pytest.raises(WrongResultError, match=f"q3: {text}"):
            oracle.compare(query.name, query.oracle, answer_of(oracle, query, tmp_path / name))
    oracle.close()


def test_winning_bids_replace_each_other(streams: dict[str, Events], tmp_path: Path) -> None:
    """Flink never retracts rows of q9; without upserts, superseded bids would remain."""
    query, oracle = _QUERIES["q9"], Oracle(_tables(streams))
    answer = _answer(streams, query)
    place = 12
    before = (*answer[0][:place], answer[0][place] - 1, *answer[0][place + 1 :])
    _written(tmp_path / "q9", [before], ["+I"], number=9)
    _written(tmp_path / "q9", [before, *answer], ["+U", "+U", *["+I"] * (len(answer) - 1)], 10)
    assert oracle.compare(
        query.name, query.oracle, answer_of(oracle, query, tmp_path / "q9")
    ) == len(answer)
    oracle.close()


def test_configuration_of_a_job(tmp_path: Path) -> None:
    both = {name: statements.QUERIES[name] for name in ("q3", "q9")}
    (tmp_path / "job").mkdir()
    job = Job(tmp_path / "job", Mode.DURABLE, {"both": both, "one": {"q3": both["q3"]}})
    job.write({"bid": "CREATE TABLE bid"}, Jvm(parallelism=3))
    lines = (tmp_path / "job" / "flink.properties").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert found["parallelism.default"] == "3"
    assert found["pipeline.object-reuse"] == "true"
    assert found["execution.checkpointing.dir"] == f"file://{tmp_path}/job/checkpoints"
    assert {path.name for path in (tmp_path / "job" / "both").iterdir()} == {"q3.sql", "q9.sql"}
    assert [path.name for path in (tmp_path / "job" / "one").iterdir()] == ["q3.sql"]
    plain = Jvm().configuration(Mode.ROWS, tmp_path)
    assert not any("checkpoint" in name or "mini-batch" in name for name in plain)


def test_output_without_cpu_time_is_an_error() -> None:
    with pytest.raises(RivalError, match="Flink printed no CPU time:\nnothing"):
        usage("nothing")


def test_a_missing_environment_names_its_command(tmp_path: Path) -> None:
    assert "flink" in Environment.names()
    with pytest.raises(RivalError, match=r"run 'python -m benchmarks\.rivals install flink'"):
        Environment("flink", home=tmp_path).require()


def _entry(events: int, singles: bool) -> dict[str, Any]:
    """Return a result line of two rounds; in each, another setting of Flink is the cheaper one."""
    names = ["q3", "q9"] if singles else []
    ours = {name: [2.0, 3.0] for name in names} | {"together": [3.0, 4.0]}
    rows = [Cost(20, 9, 8), Cost(20, 10, 9)]
    batches = [Cost(21, 12, 6), Cost(19, 8, 10)]
    theirs: dict[Mode, dict[str, list[Cost]]] = {
        Mode.ROWS: dict.fromkeys(ours, rows),
        Mode.MINI_BATCH: dict.fromkeys(ours, batches),
        Mode.DURABLE: {"together": [Cost(30, 24, 15), Cost(30, 24, 16)]},
    }
    return {
        "benchmark": "nexmark",
        "part": "rivals",
        "at": f"2030-01-01T00:00:{events % 60:02}Z",
        "commit": "0" * 40,
        "changed": False,
        "versions": {"python": "3.11"},
        "machine": {"cpus": 2, "memory_gib": 24, "system": "Linux x86_64"},
        "load": {"before": [0, 0, 0], "after": [1, 1, 1]},
        "settings": {"events": events, "runs": 2},
        "joins": ["q3", "q9"],
        "rivals": {"Flink": "2.3.0"},
        "rows": {"q3": 170, "q9": 1105},
        **nexmark.figures(ours, theirs),
    }


def test_of_flinks_settings_each_rounds_better_counts() -> None:
    entry = _entry(1000, singles=True)
    joint = entry["flink"]["together"]
    assert [joint[name]["median"] for name in ("whole", "live", "warm")] == [19.5, 8.5, 7.5]
    assert entry["flink"]["apart"]["live"]["median"] == 17
    assert entry["ours"]["apart"]["median"] == 5
    assert entry["times"]["together"]["live"]["median"] == 2.5
    assert entry["times"]["each"]["q3"]["warm"]["median"] == 3
    assert entry["times"]["durable"]["live"]["median"] == 7
    summary, each = nexmark.tables(entry)
    ours, live, warm, whole, durable, _ = summary.rows
    assert ours[1:4] == ("3.5 (3.0–4.0)", "5.0 (4.0–6.0)", "1.43")
    assert live[4] == "2.50 (2.00–3.00)"
    assert warm[1] == "7.5 (6.0–9.0)"
    assert whole[1:] == ("19.5 (19.0–20.0)", "39.0 (38.0–40.0)", "2.00", "", "")
    assert durable[2:] == ("", "", "7.00 (6.00–8.00)", "")
    assert [row[0] for row in each.rows] == ["q3", "q9"]
    assert {target.verdict for target in nexmark.targets(entry)} <= set(Verdict)
    assert [grid.title for grid in nexmark.tables(_entry(1000, singles=False))] == [summary.title]


def test_a_page_shows_every_number_of_events(tmp_path: Path) -> None:
    saved = (ROOT / "docs" / "benchmarks" / "nexmark.jsonl").read_text(encoding="utf-8")
    exact = [line for line in saved.splitlines() if json.loads(line)["part"] == "exact"][-1]
    lines = [_entry(2000, singles=True), _entry(1000, singles=False), _entry(2000, singles=True)]
    text = "\n".join([exact, *map(json.dumps, lines)])
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "nexmark.jsonl").write_text(text + "\n", encoding="utf-8")
    assert report.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "benchmarks-nexmark.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## Beside Flink")
    assert "*1,000 events, Flink 2.3.0.* 2 join queries at once took 3.5 s of CPU" in section
    assert section.index("*At once and each, 1,000 events") < section.index(
        "*At once and each, 2,000 events"
    )
    # Both result lines with 2,000 events are pooled: each line's median counts as a run.
    assert section.count("| anabranch, from the second batch |") == 2
    assert section.count("2030-01-01T00:00:20Z") == 2
    assert (
        "| 2,000 events: CPU of Flink's statement set, warm, to ours at once | ≥ 4 × |" in section
    )


@pytest.mark.slow
def test_flink_has_duckdbs_rows(tmp_path: Path) -> None:
    """Run all queries at once and two of them alone in Flink, in every mode."""
    try:
        ENVIRONMENT.require()
    except RivalError as error:
        pytest.skip(str(error))
    given = Input.of(5000, 2, 1000.0, tmp_path / "input")
    (tmp_path / "flink").mkdir()
    flink = Flink(given, 2, Jvm(), tmp_path / "flink")
    sets = {"together": JOINS, "q4": [_QUERIES["q4"]], "q9": [_QUERIES["q9"]]}
    for mode in Mode:
        rows = flink.check(sets, mode)
        assert list(rows) == list(_QUERIES)
        assert min(rows.values()) > 0
    cost = flink.cost([_QUERIES["q3"]], Mode.ROWS)
    assert cost.whole > max(cost.live, cost.warm)
