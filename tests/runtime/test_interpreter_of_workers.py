"""The script that starts Spark's Python processes: this interpreter, without Spark's zips."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from anabranch_runtime.interpreter import worker_interpreter


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
