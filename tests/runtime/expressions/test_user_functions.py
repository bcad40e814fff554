"""Tests of user-defined functions: equal to kernels, and isolated whatever they do."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.connectors.user_functions import (
    VARIABLE,
    FunctionKind,
    UserFunction,
    read_signature,
)
from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.cpu import process_seconds, thread_seconds
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.evaluate import evaluate, filter_mask
from anabranch_runtime.expressions.user_functions import end_all
from anabranch_runtime.expressions.user_process import called
from tests.support.functions.registered import ENVIRONMENT, registered

MODULE = """
import os, random, subprocess, sys, time
import pyarrow as pa
import pyarrow.compute as pc
import helper

calls = 0

def same(x): return x
def half(x): return helper.half(x)
def row(x): return None if x is None else x / 2
def series(x): return x / 2
def chunked(x): return pa.chunked_array([x.slice(0, 1), x.slice(1)])
def number(x):
    global calls
    calls += 1
    return pa.repeat(float(calls), len(x))
def raises(x): raise ValueError("no good")
def loops(x):
    while True: pass
def counts(x): return sum(range(10**12))
def sleeps(x):
    subprocess.Popen(["sleep", "1234.5"])
    time.sleep(1000)
def quits(x): os._exit(3)
def exits(x): sys.exit(4)
def crashes(x): os.kill(os.getpid(), 11)
def short(x): return x.slice(1)
def single(x): return pa.scalar(1.0)
def nothing(x): return None
def text(x): return x.cast(pa.string())
def floats(x): return 1.5
def prints(x):
    print("a line on standard output")
    os.write(1, b"another")
    return x
def invalid(x):
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\\0\\0\\0\\0\\1\\0\\0\\0"),
                                                  pa.py_buffer(b"\\xff")])
constant = 1
"""
DOUBLE = parse_type("double")
X = Column("", "x", DOUBLE)
THREE = pa.array([1.0, None, 3.0])


@pytest.fixture
def allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "helper.py").write_text(
        "import pyarrow.compute as pc\ndef half(x): return pc.divide(x, 2)\n"
    )
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    yield tmp_path
    end_all()


def function(folder: Path, attribute: str, **others: Any) -> UserFunction:
    file = folder / f"{others.get('module', 'mine')}.py"
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "none"
    given = {
        "name": attribute,
        "parameters": (DOUBLE,),
        "result": DOUBLE,
        "module": "mine",
        "digest": digest,
        "limit": 5_000,
    }
    return UserFunction(**{**given, "attribute": attribute, **others})


def values(one: UserFunction, column: pa.Array = THREE) -> pa.Array:
    return evaluate(one.call([X]), lambda _: column, len(column))


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [("half", "arrow"), ("row", "row"), ("series", "pandas")],
)
def test_all_kinds_give_the_same(allowed: Path, attribute: str, kind: str) -> None:
    one = function(allowed, attribute, kind=FunctionKind(kind))
    assert values(one).to_pylist() == [0.5, None, 1.5]
    many = pa.array(np.random.default_rng(1).random(1_000_000))
    assert values(one, many).equals(pc.divide(many, 2))
    assert values(one, many.slice(7, 20)).equals(pc.divide(many.slice(7, 20), 2))
    assert values(one, many.slice(0, 0)).type == pa.float64()


def test_a_calls_cpu_time_is_that_of_the_calling_thread(allowed: Path) -> None:
    values(function(allowed, "half"))
    beside = threading.Thread(target=time.sleep, args=(0.01,))
    before = process_seconds(), thread_seconds(), time.process_time()
    beside.start()
    values(function(allowed, "row", kind=FunctionKind.ROW), pa.array([1.5] * 300_000))
    beside.join()
    here = time.process_time() - before[2]
    assert process_seconds() - before[0] > here + 0.02
    assert thread_seconds() - before[1] > here + 0.02
    other = list[float]()
    reader = threading.Thread(target=lambda: other.append(thread_seconds()))
    reader.start()
    reader.join()
    assert other[0] < 0.02


def test_chunks_are_one_column_and_output_does_no_harm(allowed: Path) -> None:
    assert values(function(allowed, "chunked")).to_pylist() == [1.0, None, 3.0]
    assert values(function(allowed, "prints")).to_pylist() == [1.0, None, 3.0]


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("raises", r"raises\(\) failed: ValueError: no good \(line \d+ of mine.py\)"),
        ("quits", r"ended its process \(exit code 3\)"),
        ("exits", r"SystemExit: 4"),
        ("crashes", r"ended its process \(signal SIGSEGV\)"),
        ("short", "the result has 2 values, the arguments have 3"),
        ("single", "the result is of type DoubleScalar, not an Arrow array"),
        ("nothing", "the result is of type NoneType, not an Arrow array"),
        ("text", "the result is of Arrow type string, not double"),
        ("constant", "'int' object is not callable"),
        ("absent", "module 'mine' has no attribute 'absent'"),
    ],
)
def test_failures_name_function_and_reason(allowed: Path, attribute: str, message: str) -> None:
    one = function(allowed, attribute)
    for _ in range(2):
        with pytest.raises(ExpressionError, match=message) as caught:
            values(one)
        assert caught.value.code == "function-failed"
        assert caught.value.field == f"{attribute}@{one.version}(x)"
        assert values(function(allowed, "half")).to_pylist() == [0.5, None, 1.5]


def test_results_are_of_the_declared_type(allowed: Path) -> None:
    for kind, attribute in (("row", "floats"), ("pandas", "same")):
        one = function(allowed, attribute, kind=FunctionKind(kind), result=parse_type("int"))
        with pytest.raises(ExpressionError, match="the result is not of type int32"):
            values(one, pa.array([1.5]))
    one = function(allowed, "invalid", result=parse_type("string"))
    with pytest.raises(ExpressionError, match="UTF8"):
        values(one, pa.array([1.0]))


@pytest.mark.parametrize("attribute", ["loops", "counts", "sleeps"])
def test_a_function_that_hangs_is_ended(allowed: Path, attribute: str) -> None:
    values(function(allowed, "half"))
    one, began = function(allowed, attribute, limit=300), time.monotonic()
    with pytest.raises(ExpressionError, match=r"took more than 0.3 s") as caught:
        values(one)
    assert caught.value.code == "function-too-slow"
    assert time.monotonic() - began < 10
    while _commands(b"1234.5"):
        assert time.monotonic() - began < 20
        time.sleep(0.01)
    assert values(function(allowed, "half")).to_pylist() == [0.5, None, 1.5]


def _commands(text: bytes) -> list[bytes]:
    """Return the command lines of running processes that contain ``text``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return [line for line in found if text in line]


def test_modules_that_can_not_be_loaded(allowed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(one: UserFunction) -> str:
        with pytest.raises(ExpressionError) as caught:
            # Arguments that no earlier call had, since results may be cached.
            values(one, pa.array([time.monotonic()]))
        assert caught.value.code == "function-unavailable"
        return caught.value.message

    (allowed / "bad.py").write_text("raise KeyError('x')")
    (allowed / "gone.py").write_text("import os\nos._exit(7)")
    assert "KeyError: 'x' (line 1 of bad.py)" in refused(function(allowed, "f", module="bad"))
    assert "exit code 7" in refused(function(allowed, "f", module="gone"))
    assert "there is no file" in refused(function(allowed, "f", module="absent"))
    half = function(allowed, "half")
    assert values(half, pa.array([6.0])).to_pylist() == [3.0]
    (allowed / "mine.py").write_text(MODULE + "# changed\n")
    # A process that has loaded the file continues; another one refuses the changed file.
    assert values(half, pa.array([8.0])).to_pylist() == [4.0]
    end_all()
    assert "has changed since the function was registered" in refused(half)
    (allowed / "mine.py").unlink()
    assert "there is no file" in refused(half)
    monkeypatch.delenv(VARIABLE)
    assert "there is no file of module mine" in refused(half)


def test_equal_calls_are_made_once(allowed: Path) -> None:
    one = function(allowed, "number")
    assert values(one).to_pylist() == [1.0] * 3
    assert (
        values(one, pa.concat_arrays([THREE.slice(0, 1), THREE.slice(1)])).to_pylist() == [1.0] * 3
    )
    assert values(one, pa.array([1.0, 2.0, 3.0])).to_pylist() == [2.0] * 3
    assert values(one, pa.array([0.0])).to_pylist() != values(one, pa.array([-0.0])).to_pylist()
    varying = function(allowed, "number", deterministic=False)
    assert values(varying).to_pylist() != values(varying).to_pylist()


def test_constants_are_computed_once_unless_they_vary(allowed: Path) -> None:
    calls = {one.deterministic: one.call([Literal(1.0, DOUBLE)]) for one in (
        function(allowed, "same"), function(allowed, "same", deterministic=False))}  # fmt: skip
    for expr in calls.values():
        assert evaluate(expr, lambda _: THREE, 3).to_pylist() == [1.0] * 3


def test_it_is_called_only_on_rows_that_need_it(allowed: Path) -> None:
    one = function(allowed, "raises")
    none = Call("gt", (X, Literal(5.0, DOUBLE)), BOOLEAN)
    guarded = Call("case", (none, one.call([X]), X), DOUBLE)
    assert evaluate(guarded, lambda _: THREE, 3).to_pylist() == [1.0, None, 3.0]
    tested = Call("gt", (one.call([X]), X), BOOLEAN)
    # Conditions that can't fail are evaluated first.
    mask = filter_mask([tested, none], lambda _: THREE, 3)
    assert mask is not None
    assert not mask.any()
    both: Expr = Call("and", (none, tested), BOOLEAN)
    assert evaluate(both, lambda _: pa.array([1.0]), 1).to_pylist() == [False]


def test_threads_call_at_the_same_time(allowed: Path) -> None:
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        column = pa.array([float(number)] * 100)
        made = [values(function(allowed, "half"), column) for _ in range(20)]
        found[number] = all(one.equals(pc.divide(column, 2)) for one in made)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(6), True)


_ORACLES: dict[str, Callable[..., Any]] = {
    "above": lambda x, y: None if None in (x, y) else x > y,
    "below": lambda x, y: None if None in (x, y) else x < y,
    "known": lambda x: x is not None,
    "begins": lambda x, y: None if None in (x, y) else x.startswith(y),
    "doubled": lambda x: None if x is None else 2 * x,
    "joined": lambda x, y: f"{x or ''}-{y or ''}",
}
_VALUES = {
    "double": st.none() | st.floats(-1e9, 1e9),
    "bigint": st.none() | st.integers(-(2**60), 2**60),
    "string": st.none() | st.text(max_size=5),
}


@given(st.data())
def test_random_rows_equal_python(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, ENVIRONMENT[VARIABLE])
        name = data.draw(st.sampled_from(sorted(_ORACLES)))
        one = registered()[name]
        rows = data.draw(st.lists(st.tuples(*(_VALUES[k] for k in one.parameters)), min_size=1))
        columns = {
            f"c{n}": pa.array(
                [row[n] for row in rows],
                {"double": pa.float64(), "bigint": pa.int64(), "string": pa.string()}[kind],
            )
            for n, kind in enumerate(one.parameters)
        }
        args = [Column("", f"c{n}", kind) for n, kind in enumerate(one.parameters)]
        found = evaluate(one.call(args), lambda c: columns[c.name], len(rows)).to_pylist()
        assert found == [_ORACLES[name](*row) for row in rows]


def test_signatures() -> None:
    name, parameters, result = read_signature(
        "F(a array<struct<x:int,y:map<string,int>>>, b decimal(9, 2)) RETURNS Long"
    )
    assert (name, list(parameters), result) == ("f", ["a", "b"], parse_type("bigint"))
    assert parameters["b"] == parse_type("decimal(9,2)")


@pytest.mark.parametrize(
    ("kind", "values", "type_", "found"),
    [
        ("row", [1, None], "double", [1.0, None]),
        ("row", [float("nan")], "double", "nan"),
        ("pandas", [1.0, None], "bigint", [1, None]),
        ("pandas", [1.0, float("nan")], "double", [1.0, None]),
        ("row", [1.5], "bigint", None),
        ("pandas", [1.5], "bigint", None),
        ("row", [1], "boolean", None),
        ("pandas", [1], "boolean", None),
        ("row", [1], "string", None),
        ("row", [2**40], "int", None),
        ("row", [[1, 2], None], "array<int>", [[1, 2], None]),
        ("row", [[("a", 1)]], "map<string,int>", [[("a", 1)]]),
        ("row", [{"a": 1}], "struct<a:int,b:string>", [{"a": 1, "b": None}]),
        ("row", [b"x"], "string", None),
        ("row", ["x"], "binary", None),
        ("row", [date(2024, 1, 1), None], "date", [date(2024, 1, 1), None]),
        (
            "row",
            [datetime(2024, 1, 1, tzinfo=UTC)],
            "timestamp",
            [datetime(2024, 1, 1, tzinfo=UTC)],
        ),
        ("row", [Decimal("1.25")], "decimal(9,2)", [Decimal("1.25")]),
        ("row", [Decimal("1.255")], "decimal(9,2)", None),
        ("row", [Decimal("1.25")], "double", None),
    ],
)
def test_conversion_of_python_values(kind: str, values: list[Any], type_: str, found: Any) -> None:
    wanted = arrow_type(parse_type(type_))
    given = pa.RecordBatch.from_pydict({"x": pa.nulls(len(values), pa.int64())})

    def result(_: Any) -> Any:
        return pd.Series(values) if kind == "pandas" else rest.pop(0)

    rest = list(values)
    if found is None:
        with pytest.raises(TypeError, match="the result is not of type"):
            called(result, kind, given, wanted)
        return
    made = called(result, kind, given, wanted)
    assert made.type == wanted
    assert (str(made[0]) if found == "nan" else made.to_pylist()) == found
