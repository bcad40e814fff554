"""Tests of the check of Spark's Java, with scripts in place of other Javas."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_client.doctor.findings import Verdict
from anabranch_client.doctor.java import check_java


def test_the_java_of_this_machine() -> None:
    found = check_java()
    assert found.verdict is Verdict.OK
    assert int(found.facts["version"].partition(".")[0]) >= 17


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'openjdk version \"1.8.0_302\"' >&2", "1.8.0_302"),
        ("echo 'openjdk version \"11.0.2\" 2019' >&2", "too old"),
        ("echo nothing", "does not print its version"),
    ],
)
def test_a_java_that_will_not_do(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = check_java()
    assert (found.verdict, said in found.said) == (Verdict.FAIL, True), found.said
    assert "17" in found.remedy


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "has no bin/java" in check_java().said
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = check_java()
    assert (found.verdict, found.said) == (Verdict.FAIL, "not found on the path")
    assert check_java(needed=False).verdict is Verdict.WARN
