"""Tests that staged files of a cluster's tasks reach the driver's staging folder."""

from __future__ import annotations

from pathlib import Path

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.driver.cluster import take_staged
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.task.context import BatchContext


def test_late_rows_of_several_streams_do_not_replace_each_other(tmp_path: Path) -> None:
    kept = attach(tmp_path / "state", (tmp_path / "store").as_uri())
    reports = []
    for task in range(2):
        names = {s: f"staging/a/.late/{s}/{task}.parquet" for s in ("s1", "s2")}
        for stream, name in names.items():
            file = tmp_path / "store" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{stream} {task}")
        reports.append(TaskReport(late=dict(names)))
    context = BatchContext(
        1, 0, RulesetId(0), "a", str(tmp_path / "state"), str(tmp_path / "staging"), "", ""
    )
    assert len(take_staged(context, reports, kept)) == 4
    for task, report in enumerate(reports):
        texts = {stream: Path(path).read_text() for stream, path in report.late.items()}
        assert texts == {"s1": f"s1 {task}", "s2": f"s2 {task}"}
