"""Tests of unusable options of the runtime's command: named with the remedy, before
Spark starts.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from anabranch_runtime.__main__ import main

GIVEN = ("--redis-url", "redis://127.0.0.1:1/0", "--state", "state", "--results", "results")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--meeting-port", "70000"), "'70000' is not a port, 0 (any) to 65535"),
        (("--meeting-port", "any"), "'any' is not a port"),
        (("--spark-conf", "memory=4g"), "--spark-conf: 'memory=4g' is not a setting of Spark"),
        (("--spark-conf", "spark.sql.adaptive.enabled=true"), "the pipeline relies on its value"),
        (("--cache-size", "1GB"), "--cache-size (ANABRANCH_CACHE_SIZE) needs --object-store"),
        (("--interim-seconds", "0"), "is not a number of seconds from 0.1 to 3600"),
        (("--memory-limit", "much"), "much"),
    ],
)
def test_what_cannot_be_used_is_named(
    options: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*GIVEN, *options])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_variables_are_held_to_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANABRANCH_SPARK_CONF", "spark.executor.memory=4g\nspark.master=yarn")
    with pytest.raises(SystemExit):
        main([*GIVEN])
    assert "ANABRANCH_SPARK_CONF: spark.master can't be set here: use --master" in (
        capsys.readouterr().err
    )
    monkeypatch.setenv("ANABRANCH_SPARK_CONF", "")
    monkeypatch.setenv("ANABRANCH_MEETING_PORT", "x")
    with pytest.raises(SystemExit):
        main([*GIVEN])
    assert "ANABRANCH_MEETING_PORT" in capsys.readouterr().err


def test_the_jvm_starts_before_libraries_are_imported() -> None:
    """Imports that take a second would delay every restart."""
    code = "import sys, anabranch_runtime.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"numba", "numpy", "pyarrow", "pyspark", "structlog", "pydantic"}
