"""Tests of the JSON codec: threads that decode types for the first time."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Threads decode each of many new types at the same time, with as many thread switches as possible.
_FIRST_USE = """
import json, sys
from dataclasses import make_dataclass
from threading import Barrier, Thread
from anabranch_contract import codec

sys.setswitchinterval(1e-6)
document = {f"f{i}": {f"x{j}": j for j in range(8)} for i in range(10)}
for number in range(50):
    parts = [make_dataclass(f"Part{i}", [(f"x{j}", int) for j in range(8)]) for i in range(10)]
    whole = make_dataclass("Whole", [(f"f{i}", part | None) for i, part in enumerate(parts)])
    found, gate = [], Barrier(4)

    def decode():
        gate.wait()
        found.append(%s)

    threads = [Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [codec.to_json(value) for value in found] == [document] * 4, number
"""


@pytest.mark.parametrize(
    "call", ["codec.loads(json.dumps(document), whole)", "codec.from_json(document, whole)"]
)
def test_threads_decode_a_type_for_the_first_time_together(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_USE % call], capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
