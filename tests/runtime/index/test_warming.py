"""Tests that batches use only kernels that are compiled ahead of the first batch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Prints the types of kernels that a run of scenarios compiles in addition to those compiled ahead.
_SCRIPT = """
import importlib, json, pkgutil, sys
from numba.core.dispatcher import Dispatcher
from anabranch_runtime import index
from anabranch_runtime.index import warming
from tests.support.scenarios.run import main

def known():
    modules = [importlib.import_module(m.name)
               for m in pkgutil.iter_modules(index.__path__, index.__name__ + ".")]
    return {f"{m.__name__}.{n} {types}" for m in modules for n, kernel in vars(m).items()
            if isinstance(kernel, Dispatcher) for types in kernel.signatures}

warming.warm()
before = known()
failed = main(["--engine", "local", "--seeds", "3-6"])
print(json.dumps({"failed": failed, "ahead": len(before), "late": sorted(known() - before)}))
"""


@pytest.mark.slow
def test_no_kernel_is_compiled_in_a_batch() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=240, check=True
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["ahead"] > 20
    assert not found["late"]
    assert found["failed"] == 0
