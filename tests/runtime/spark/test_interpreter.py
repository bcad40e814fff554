"""Tests of the script that starts Spark's Python processes with this interpreter, without Spark's
zips.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_runtime.spark.interpreter import worker_interpreter


def test_it_is_this_interpreter_with_this_path() -> None:
    program = (
        "import sys, json, pyspark; print(json.dumps([sys.executable, sys.argv, pyspark.__file__]))"
    )
    found = subprocess.run(
        [worker_interpreter(), "-c", program, "a b", "$c"],
        env={**os.environ, "PYTHONPATH": "/no/such.zip"},
        capture_output=True,
        text=True,
        check=True,
    )
    executable, arguments, module = json.loads(found.stdout)
    assert os.path.realpath(executable) == os.path.realpath(sys.executable)
    assert arguments == ["-c", "a b", "$c"]
    assert ".zip" not in module


def test_the_script_is_written_where_it_is_missing_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = Path(worker_interpreter())
    assert script.is_relative_to(tmp_path)
    text, written = script.read_text(), script.stat()
    assert worker_interpreter() == str(script)
    assert (script.stat().st_ino, script.stat().st_mtime_ns) == (
        written.st_ino,
        written.st_mtime_ns,
    )
    script.write_text("exit 1")
    worker_interpreter()
    assert script.read_text() == text
    script.chmod(0o600)
    assert os.access(worker_interpreter(), os.X_OK)
    assert [p.name for p in script.parent.iterdir()] == ["python"]
