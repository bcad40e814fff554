"""Tests of attempts at a batch: a failed one is repeated, but not one that has waited for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.driver.attempts import attempt
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.task.context import BatchContext


@pytest.mark.parametrize(("code", "tried"), [("host-unreachable", 4), ("no-executors", 1)])
def test_attempts_end_early_where_nobody_is_there_to_run_them(
    code: str, tried: int, tmp_path: Path
) -> None:
    contexts: list[str] = []
    context = BatchContext(7, 1, RulesetId(0), "", str(tmp_path), "", "redis://", "test")

    def job(context: BatchContext) -> list[TaskReport]:
        contexts.append(context.attempt)
        raise PipelineError(code, "it failed")

    with pytest.raises(PipelineError, match="it failed"):
        attempt(
            context,
            job,
            None,
            results=tmp_path / "results",
            attempts=4,
            stopping=lambda: False,
            discard=lambda packs: None,
        )
    assert len(set(contexts)) == len(contexts) == tried
