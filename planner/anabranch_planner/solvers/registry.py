"""Solvers by name: how each is loaded, and how its solutions are checked.

HiGHS runs in this process. OR-Tools can't, because its wheel and the wheel of HiGHS contain a
library of the same name, and the wheel loaded second gets the wrong library. CBC is a separate
program. OR-Tools and CBC run in a child process of the same interpreter
(:mod:`anabranch_planner.solvers.child`). A child that exceeds its time can be killed, and its
caller survives if it crashes or runs out of memory.

Although a process is started here, the planner does no I/O: the process only evaluates a function
from requests to solutions, and a plan depends on no other data from it.

Loading takes 0.3 s (CBC) to 0.7 s (CP-SAT). To solve several programs in a row, a caller opens the
solver once (:func:`opened`) and pays for loading once.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Timer
from typing import cast

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Solver
from anabranch_planner.solvers import child as child_process
from anabranch_planner.solvers.child import failed, guarded, receive, send
from anabranch_planner.solvers.interface import Request, Solution, SolveStatus
from anabranch_planner.solvers.program import Program

#: Maximum seconds that a child process may take to load its solver.
LOADING = 30.0
#: Seconds after a request's time limit after which a child without an answer is killed.
GRACE = 5.0
#: Maximum distance of an integral variable from an integer.
TOLERANCE = 1e-6


#: The solvers that run in a child process, and all solvers of integer programs.
CHILDREN = (Solver.CP_SAT, Solver.MATHOPT, Solver.CBC)
PROGRAM_SOLVERS = (Solver.HIGHS, *CHILDREN)


def solve(solver: Solver, request: Request) -> Solution:
    """The solution of ``request`` by ``solver``.

    Never raises. If the solver is missing, fails, is killed, does not stop, or returns a point that
    violates the program, the solution has the status ``FAILED`` and a message.
    """
    with opened(solver) as ask:
        return ask(request)


def proven(
    solver: Solver, answer: Solution, remedy: str, field: str = "solver"
) -> tuple[float, ...]:
    """The variables' values in ``answer``, which has to be a proven optimum.

    Raises:
        PlannerError: ``no-solution``: the answer of ``solver`` is not optimal.
    """
    if answer.status is not SolveStatus.OPTIMAL or answer.values is None:
        message = f"{solver} ended with {answer.status}: {answer.message}"
        raise PlannerError("no-solution", message, field=field, remedy=remedy)
    return answer.values


@contextmanager
def opened(solver: Solver) -> Iterator[Callable[[Request], Solution]]:
    """A function like :func:`solve` for several requests; the solver is loaded once."""
    child = None if solver not in CHILDREN else _Child(solver)
    run = _in_process if solver is Solver.HIGHS else _no_solver if child is None else child.ask

    def ask(request: Request) -> Solution:
        found = guarded(solver, run, request) if request.program.variables else _empty(request)
        return guarded(solver, lambda r: checked(solver, r, found), request)

    try:
        yield ask
    finally:
        if child is not None:
            child.close()


def _empty(request: Request) -> Solution:
    """The solution of a program without variables, which some solvers reject."""
    program = request.program
    if _excess(program, np.zeros(0)) > 1.0:
        return Solution(SolveStatus.INFEASIBLE, None, math.inf, 0.0)
    return Solution(SolveStatus.OPTIMAL, (), program.offset, 0.0)


def _no_solver(request: Request) -> Solution:
    del request
    names = ", ".join(PROGRAM_SOLVERS)
    return failed(f"this solver does not solve integer programs; use one of {names}")


def _in_process(request: Request) -> Solution:
    try:
        back_end = child_process.load(Solver.HIGHS)
        import highspy
    except ImportError as cause:
        complaint = child_process.unavailable(Solver.HIGHS, cause)
        return failed(f"the solver {Solver.HIGHS} {complaint}")
    # HiGHS keeps the worker threads of its first request, and rejects any other number later.
    highspy.Highs.resetGlobalScheduler(True)
    return back_end.solve(request)


def checked(solver: Solver, request: Request, solution: Solution) -> Solution:
    """``solution`` with integral variables rounded if it satisfies the program, else a failed one.

    The bound is clipped to the point's value, which it can exceed only by rounding, and raised to
    the bound that follows from the variables' ranges.
    """
    program = request.program
    has_point = solution.status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)
    if has_point != (solution.values is not None):
        which = "without" if has_point else "with"
        return failed(f"the solver {solver} reports {solution.status} {which} a point")
    bound = math.inf
    if solution.status is not SolveStatus.INFEASIBLE:
        ranges = zip(program.costs, program.tops, strict=True)
        floor = program.offset + sum(c * t for c, t in ranges if c < 0)
        bound = floor if math.isnan(solution.bound) else max(solution.bound, floor)
    if solution.values is None:
        return replace(solution, bound=bound)
    point = np.array(solution.values, dtype=float)
    if point.shape != (program.variables,):
        return failed(f"the solver {solver} gives values for {point.size} variables")
    integral = np.array(program.integers, dtype=bool)
    rounded = np.where(integral, np.round(point), point)
    rounded = np.clip(rounded, 0.0, np.array(program.tops))
    off = float(np.max(np.abs(rounded - point), initial=0.0))
    excess = _excess(program, rounded)
    # Written so that the check fails for a NaN.
    if not (off <= TOLERANCE and excess <= 1.0):
        return failed(
            f"the solver {solver} gives a point that is not a solution "
            f"(off by {off:g}, rows violated by {excess * TOLERANCE:g})"
        )
    value = program.offset + float(np.dot(np.array(program.costs), rounded))
    if solution.status is SolveStatus.OPTIMAL and not integral.any():
        # HiGHS reports a bound only for programs with integral variables.
        bound = value
    return replace(solution, values=tuple(rounded.tolist()), bound=min(bound, value))


def _excess(program: Program, point: NDArray[np.float64]) -> float:
    """The largest violation of a row of the program, in units of the row's tolerance.

    A row's tolerance is ``TOLERANCE`` times the sum of its absolute coefficients, or times 1.
    """
    if program.rows == 0:
        return 0.0
    values = np.array(program.values, dtype=float)
    rows = np.repeat(np.arange(program.rows), np.diff(np.array(program.starts)))
    indices = np.array(program.indices, dtype=np.int64)
    activity = np.bincount(rows, values * point[indices], minlength=program.rows)
    tolerated = TOLERANCE * np.maximum(
        np.bincount(rows, np.abs(values), minlength=program.rows), 1.0
    )
    below = (np.array(program.lowers) - activity) / tolerated
    above = (activity - np.array(program.uppers)) / tolerated
    return float(np.max(np.maximum(below, above)))


class _Broken(Exception):
    """The solver's child process failed; the message completes the sentence "the solver X ..."."""


class _Child:
    """A child process that loads one solver and answers requests; started when first needed."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._process: subprocess.Popen[bytes] | None = None
        # Temporary directory of the child and its processes, removed even if they crash.
        self._folder = TemporaryDirectory(prefix="anabranch-solver-")
        self._report = Path(self._folder.name, "stderr")

    def ask(self, request: Request) -> Solution:
        """The child's solution, or a failed one; after a fault the next call starts a new child."""
        limit = None if request.time_limit is None else max(request.time_limit, 0.0) + GRACE
        try:
            if self._process is None:
                self._start()
            answer = self._exchange(request, limit)
            if not isinstance(answer, Solution):
                raise _Broken("sent something that is not a solution")
            return answer
        except _Broken as cause:
            self._stop()
            return failed(f"the solver {self._solver} {cause}")
        except BaseException:
            # Stop the child, whose late answer would be read as the answer to the next request.
            self._stop()
            raise

    def close(self) -> None:
        """End the solver's process and remove its files."""
        self._stop()
        self._folder.cleanup()

    def _start(self) -> None:
        # The option -P keeps modules in the working directory from shadowing the solver's.
        command = [sys.executable, "-P", "-m", child_process.__name__, self._solver.value]
        with self._report.open("wb") as report:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=report,
                env={**os.environ, "TMPDIR": self._folder.name},
                start_new_session=True,
            )
        complaint = self._exchange(None, LOADING)
        if complaint != "":
            raise _Broken(str(complaint))

    def _exchange(self, request: Request | None, limit: float | None) -> object:
        """Send ``request``, if any, to the child; receive a message within ``limit`` seconds."""
        process = cast("subprocess.Popen[bytes]", self._process)
        assert process.stdin is not None
        assert process.stdout is not None
        late = Event()

        def end() -> None:
            late.set()
            _kill(process)

        timer = None if limit is None else Timer(limit, end)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            if request is not None:
                send(process.stdin, request)
            return receive(process.stdout)
        except ValueError:
            raise _Broken("sent something that is not a message") from None
        except (EOFError, OSError):
            if late.is_set():
                raise _Broken(f"did not answer within {limit:g} s and was killed") from None
            raise _Broken(self._end_of(process)) from None
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
            if late.is_set():
                self._stop()

    def _end_of(self, process: subprocess.Popen[bytes]) -> str:
        """Text about the end of a solver's process, such as "ended with code 1"."""
        try:
            code = process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "closed its output but did not exit"
        if code < 0:
            name = signal.Signals(-code).name
            hint = ", maybe out of memory" if -code == signal.SIGKILL else ""
            return f"was ended by {name}{hint}"
        lines = self._report.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "no message")
        return f"ended with code {code}: {last.strip()[:500]}"

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            # Flushing fails if the dead child has not read all requests.
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the solver's process and its children, which belong to a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
