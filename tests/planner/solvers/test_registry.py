"""Tests that all solvers give the same answers, keep their limits, and fail without affecting
others.
"""

from __future__ import annotations

import io
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import gettempdir

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Solver
from anabranch_planner.solvers import registry
from anabranch_planner.solvers.child import PREFIX, receive, send
from anabranch_planner.solvers.interface import Request, Solution, SolveStatus
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import (
    CHILDREN,
    PROGRAM_SOLVERS,
    opened,
    solve,
)
from tests.support.surroundings.kin import kin, no_kin_left

Asks = Mapping[Solver, Callable[[Request], Solution]]


solvers = pytest.mark.parametrize("solver", PROGRAM_SOLVERS)
children = pytest.mark.parametrize("solver", CHILDREN)


@pytest.fixture(scope="module")
def asks() -> Iterator[Asks]:
    """Every solver, loaded once for all tests of this file."""
    with ExitStack() as stack:
        yield {solver: stack.enter_context(opened(solver)) for solver in PROGRAM_SOLVERS}


def cover(seed: int, variables: int = 40, rows: int = 60) -> Program:
    """Return a random set cover: each row needs two of four variables."""
    rng = Random(seed)
    program = Program(offset=7.5)
    for _ in range(variables):
        program.variable(rng.random() * 10, integer=True)
    for _ in range(rows):
        program.row(2.0, INFINITY, rng.sample(range(variables), 4), [1.0] * 4)
    return program


def random_program(seed: int) -> tuple[Program, float | None]:
    """Return a small 0/1 program, and its optimum by trying all; None if infeasible."""
    rng = Random(seed)
    program = Program(offset=rng.choice([0.0, 12.25]))
    count = rng.randint(1, 6)
    for _ in range(count):
        cost = rng.choice([0.0, 1.0, rng.random(), -rng.random(), 1000 * rng.random()])
        program.variable(cost, integer=True, top=rng.choice([1.0, 1.0, 1.0, 0.0, 2.0]))
    for _ in range(rng.randint(0, 6)):
        indices = rng.sample(range(count), rng.randint(1, count))
        values = [rng.choice([1.0, -1.0, 2.0, -3.0, 0.5, 0.3]) for _ in indices]
        lower, upper = rng.choice([(-INFINITY, 1.25), (1.0, INFINITY), (0.0, 2.0), (1.0, 1.0)])
        program.row(lower, upper, indices, values)
    points: list[tuple[int, ...]] = [()]
    for top in program.tops:
        points = [(*p, v) for p in points for v in range(int(top) + 1)]
    found = [value(program, p) for p in points if feasible(program, p)]
    return program, min(found, default=None)


def value(program: Program, point: tuple[float, ...]) -> float:
    return program.offset + sum(c * v for c, v in zip(program.costs, point, strict=True))


def feasible(program: Program, point: tuple[float, ...]) -> bool:
    for i in range(program.rows):
        entries = range(program.starts[i], program.starts[i + 1])
        activity = sum(program.values[k] * point[program.indices[k]] for k in entries)
        if not program.lowers[i] - 1e-6 <= activity <= program.uppers[i] + 1e-6:
            return False
    return True


@given(seed=st.integers(0, 2**32 - 1))
def test_all_solvers_find_the_optimum_of_random_programs(asks: Asks, seed: int) -> None:
    program, best = random_program(seed)
    for solver, ask in asks.items():
        found = ask(Request(program))
        if best is None:
            assert (found.status, found.values) == (SolveStatus.INFEASIBLE, None), solver
            assert found.bound == math.inf
        else:
            assert found.status is SolveStatus.OPTIMAL, (solver, found)
            assert found.values is not None
            assert feasible(program, found.values)
            assert all(v == round(v) for v in found.values)
            assert value(program, found.values) == pytest.approx(best, rel=1e-6, abs=1e-6), solver
            assert found.bound == pytest.approx(best, rel=1e-6, abs=1e-6), solver
            assert found.bound <= value(program, found.values) + 1e-9


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_solvers_agree_on_larger_programs(asks: Asks, seed: int) -> None:
    program = cover(seed)
    found = {solver: ask(Request(program)) for solver, ask in asks.items()}
    assert {f.status for f in found.values()} == {SolveStatus.OPTIMAL}
    costs = [value(program, f.values) for f in found.values() if f.values is not None]
    assert costs == pytest.approx([costs[0]] * len(PROGRAM_SOLVERS))
    assert all(f.bound <= min(costs) * (1 + 1e-9) for f in found.values())


@solvers
def test_continuous_variables_with_an_integral_optimum(asks: Asks, solver: Solver) -> None:
    # A unit of flow on the expensive edge (2) or on the cheap one (1), which has to be opened
    # (0.5).
    program = Program()
    dear, cheap = (program.variable(c, integer=False) for c in (2.0, 1.0))
    opens = program.variable(0.5, integer=True)
    program.row(1.0, 1.0, [dear, cheap], [1.0, 1.0])
    program.row(-INFINITY, 0.0, [cheap, opens], [1.0, -1.0])
    found = asks[solver](Request(program))
    assert found.status is SolveStatus.OPTIMAL
    assert found.values == pytest.approx((0.0, 1.0, 1.0))
    assert found.bound == pytest.approx(1.5)


@solvers
def test_a_program_without_integers_is_proven_too(asks: Asks, solver: Solver) -> None:
    program = Program(offset=1.0)
    one, other = (program.variable(c, integer=False) for c in (2.0, 3.0))
    program.row(1.0, INFINITY, [one, other], [1.0, 1.0])
    found = asks[solver](Request(program))
    assert found.status is SolveStatus.OPTIMAL
    assert found.values == pytest.approx((1.0, 0.0))
    assert found.bound == pytest.approx(3.0)


def test_cp_sat_refuses_tops_that_are_no_integers(asks: Asks) -> None:
    program = Program()
    program.variable(1.0, integer=False, top=0.5)
    found = asks[Solver.CP_SAT](Request(program))
    assert found.status is SolveStatus.FAILED
    assert "integral tops" in found.message
    endless = Program()
    endless.variable(1.0, integer=True, top=INFINITY)
    assert asks[Solver.CP_SAT](Request(endless)).status is SolveStatus.FAILED


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e9, 1e15])
@solvers
def test_costs_of_any_size(asks: Asks, solver: Solver, scale: float) -> None:
    program = cover(4, 20, 20)
    program.costs = [c * scale for c in program.costs]
    program.offset = 0.0
    usual = cover(4, 20, 20)
    usual.offset = 0.0
    best = asks[Solver.HIGHS](Request(usual)).bound
    found = asks[solver](Request(program))
    assert found.values is not None
    assert value(program, found.values) == pytest.approx(best * scale)
    assert found.bound == pytest.approx(best * scale)
    assert found.bound <= value(program, found.values) * (1 + 1e-12)


def test_a_solver_of_other_things_says_so() -> None:
    assert set(PROGRAM_SOLVERS) == set(Solver) - {Solver.BRANCH}
    found = solve(Solver.BRANCH, Request(cover(1)))
    assert found.status is SolveStatus.FAILED
    assert "highs" in found.message


@solvers
def test_a_program_without_variables(asks: Asks, solver: Solver) -> None:
    found = asks[solver](Request(Program(offset=3.0)))
    assert (found.status, found.values, found.bound) == (SolveStatus.OPTIMAL, (), 3.0)
    impossible = Program()
    impossible.row(1.0, INFINITY, [], [])
    assert asks[solver](Request(impossible)).status is SolveStatus.INFEASIBLE


@solvers
def test_no_time_gives_no_proof_and_a_valid_bound(asks: Asks, solver: Solver) -> None:
    program = cover(5, 300, 600)
    found = asks[solver](Request(program, time_limit=0.0))
    assert found.status in (SolveStatus.NOTHING, SolveStatus.FEASIBLE), found
    assert found.seconds < 5.0
    everything = value(program, tuple(program.tops))
    assert program.offset <= found.bound <= everything
    # No limit applies beyond its call.
    assert asks[solver](Request(cover(1))).status is SolveStatus.OPTIMAL


@solvers
def test_a_start_is_no_worse_than_nothing(asks: Asks, solver: Solver) -> None:
    program = cover(1)
    best = asks[solver](Request(program))
    again = asks[solver](Request(program, start=best.values))
    assert again.status is SolveStatus.OPTIMAL
    assert again.bound == pytest.approx(best.bound)


@pytest.mark.parametrize("solver", [Solver.HIGHS, Solver.CP_SAT, Solver.MATHOPT])
def test_a_start_is_there_when_time_is_short(asks: Asks, solver: Solver) -> None:
    program = cover(6, 400, 800)
    start = tuple(program.tops)
    found = asks[solver](Request(program, start=start, time_limit=0.3))
    assert found.status is SolveStatus.FEASIBLE
    assert found.values is not None
    assert value(program, found.values) <= value(program, start)


@solvers
def test_a_start_that_is_not_feasible_does_no_harm(asks: Asks, solver: Solver) -> None:
    program = cover(1)
    wrong = (0.0,) * program.variables
    found = asks[solver](Request(program, start=wrong))
    assert found.status is SolveStatus.OPTIMAL
    assert found.bound == pytest.approx(asks[Solver.HIGHS](Request(program)).bound)


@pytest.mark.parametrize("threads", [1, 2])
@solvers
def test_equal_requests_give_equal_solutions(asks: Asks, solver: Solver, threads: int) -> None:
    # All variables cost the same, so there are many optima.
    program = cover(7, 30, 40)
    program.costs = [1.0] * program.variables
    request = Request(program, seed=3, threads=threads)
    one, other = asks[solver](request), solve(solver, request)
    assert one.status is SolveStatus.OPTIMAL
    assert one.values == other.values


@pytest.mark.parametrize("package", ["ortools", "pulp"])
def test_a_missing_package_is_named(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim(tmp_path, monkeypatch, package, f"raise ModuleNotFoundError('No module named {package}')")
    for solver in (Solver.CP_SAT, Solver.MATHOPT) if package == "ortools" else (Solver.CBC,):
        found = solve(solver, Request(cover(1)))
        assert found.status is SolveStatus.FAILED
        assert found.values is None
        assert f"install the package {package}" in found.message


def test_a_killed_child_is_reported_and_replaced() -> None:
    before = processes(Solver.CP_SAT)
    with opened(Solver.CP_SAT) as ask:
        assert ask(Request(cover(1))).status is SolveStatus.OPTIMAL
        others = processes(Solver.CP_SAT) - before
        assert len(others) == 1
        for pid in others:
            os.kill(pid, signal.SIGKILL)
            while running(pid):
                time.sleep(0.01)
        found = ask(Request(cover(1)))
        assert found.status is SolveStatus.FAILED
        assert "SIGKILL" in found.message
        assert "memory" in found.message
        assert ask(Request(cover(1))).status is SolveStatus.OPTIMAL


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import os, sys; sys.stderr.write('no licence\\n'); os._exit(3)", "code 3: no licence"),
    ],
    ids=["abort", "kill", "exit"],
)
def test_a_crash_is_reported(
    code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim(tmp_path, monkeypatch, "pulp", code)
    found = solve(Solver.CBC, Request(cover(1)))
    assert found.status is SolveStatus.FAILED
    assert message in found.message


def test_a_child_that_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "LOADING", 1.0)
    shim(tmp_path, monkeypatch, "pulp", "import time; time.sleep(60)")
    found = solve(Solver.CBC, Request(cover(1)))
    assert found.status is SolveStatus.FAILED
    assert "was killed" in found.message


def test_a_solver_that_ignores_its_limit_is_killed_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "GRACE", 0.5)
    pids = tmp_path / "pids"
    code = f"""
import os, subprocess, time
def solve(*arguments, **named):
    inner = subprocess.Popen(["sleep", "60"])
    open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{inner.pid}}")
    inner.wait()
from anabranch_planner.solvers import {{name}}
{{name}}.solve = solve
"""
    (tmp_path / "sitecustomize.py").write_text(code.replace("{name}", "cbc"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = solve(Solver.CBC, Request(cover(1), time_limit=0.5))
    assert found.status is SolveStatus.FAILED
    assert "did not answer within 1 s" in found.message
    child, inner = (int(pid) for pid in pids.read_text().split())
    assert not psutil.pid_exists(child)
    gone(inner)


def test_what_a_solver_prints_is_not_taken_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = solve(Solver.CBC, Request(cover(1)))
    assert found.status is SolveStatus.FAILED
    assert "not a message" in found.message


def test_modules_in_the_working_directory_are_not_taken_for_the_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pulp.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    assert solve(Solver.CBC, Request(cover(1))).status is SolveStatus.OPTIMAL


@children
def test_a_broken_request_fails_alone(solver: Solver, asks: Asks) -> None:
    broken = cover(1)
    broken.indices[0] = 10**6
    found = asks[solver](Request(broken))
    assert found.status is SolveStatus.FAILED
    assert found.message
    assert asks[solver](Request(cover(1))).status is SolveStatus.OPTIMAL


@children
def test_nothing_is_left_behind(
    solver: Solver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests in other processes use solvers at the same time.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = leftovers()
    with no_kin_left():
        assert solve(solver, Request(cover(1))).status is SolveStatus.OPTIMAL
        hard = Request(cover(5, 300, 600), time_limit=0.05)
        assert solve(solver, hard).status is not SolveStatus.FAILED
    assert leftovers() == before


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Solution(SolveStatus.OPTIMAL, (0.0, 0.0), 0.0, 0.0), "not a solution"),
        (Solution(SolveStatus.OPTIMAL, (0.5, 0.5), 0.0, 0.0), "not a solution"),
        (Solution(SolveStatus.OPTIMAL, (2.0, 0.0), 0.0, 0.0), "not a solution"),
        (Solution(SolveStatus.OPTIMAL, (math.nan, 1.0), 0.0, 0.0), "not a solution"),
        (Solution(SolveStatus.OPTIMAL, (1.0,), 0.0, 0.0), "values for 1 variables"),
        (Solution(SolveStatus.OPTIMAL, None, 0.0, 0.0), "optimal without a point"),
        (Solution(SolveStatus.NOTHING, (1.0, 0.0), 0.0, 0.0), "nothing with a point"),
    ],
    ids=["row", "fraction", "range", "nan", "short", "none", "extra"],
)
def test_points_that_are_no_solutions_are_refused(answer: Solution, message: str) -> None:
    program = Program()
    one, other = program.variable(1.0, integer=True), program.variable(2.0, integer=True)
    program.row(1.0, INFINITY, [one, other], [1.0, 1.0])
    found = registry.checked(Solver.HIGHS, Request(program), answer)
    assert found.status is SolveStatus.FAILED
    assert message in found.message
    fine = Solution(SolveStatus.OPTIMAL, (1.0 - 1e-8, 1e-9), 1.0 + 1e-7, 0.0)
    kept = registry.checked(Solver.HIGHS, Request(program), fine)
    assert (kept.values, kept.bound) == ((1.0, 0.0), 1.0)
    lost = registry.checked(
        Solver.HIGHS, Request(program), Solution(SolveStatus.NOTHING, None, math.nan, 0)
    )
    assert lost.bound == 0.0


def test_messages_are_framed() -> None:
    stream = io.BytesIO()
    send(stream, {"a": 1})
    stream.seek(0)
    assert receive(stream) == {"a": 1}
    with pytest.raises(EOFError):
        receive(stream)
    whole = stream.getvalue()
    with pytest.raises(EOFError):
        receive(io.BytesIO(whole[:-1]))
    with pytest.raises(EOFError):
        receive(io.BytesIO(whole[: PREFIX - 1]))
    with pytest.raises(ValueError, match="not a message"):
        receive(io.BytesIO(b"garbage that is long enough"))
    with pytest.raises(ValueError, match="not a message"):
        receive(io.BytesIO((4).to_bytes(PREFIX, "big") + b"abcd"))


def shim(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, code: str) -> None:
    """Put a ``package`` that runs ``code`` before the real one on the path of child processes."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(code + "\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))


def processes(solver: Solver) -> set[int]:
    """Return the processes in which ``solver`` runs for this one."""
    return {process.pid for process in kin(lambda words: words[-1:] == [solver.value])}


def gone(pid: int) -> None:
    """Wait until a killed process that is not our child has ended, which takes the kernel some
    time.
    """
    deadline = time.monotonic() + 60
    while running(pid):
        assert time.monotonic() < deadline, f"{pid} is still running"
        time.sleep(0.01)


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def leftovers() -> set[str]:
    """Return files that a solver may have made."""
    names = {p.name for p in Path(gettempdir()).iterdir() if "solver" in p.name or "pulp" in p.name}
    return names | {p.name for p in Path.cwd().glob("*pulp*")}
