"""The child process in which a solver runs, and the messages exchanged with it.

``python -m anabranch_planner.solvers.child SOLVER`` loads the solver's back end, reports whether
that succeeded, and then answers :class:`Request` objects one by one. A message is its length in
eight bytes, followed by a pickle of that length. When its standard input is closed, the process
ends together with its own child processes, so it never outlives its parent.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import IO, Protocol, cast

from anabranch_contract.plans.plan import Solver
from anabranch_planner.solvers.interface import Request, Solution, SolveStatus

#: Number of bytes of a message's length.
PREFIX = 8
#: Maximum length of a message in bytes; a greater number is treated as garbage.
LONGEST = 2**34

_HERE = "anabranch_planner.solvers"
_MODULES = {
    Solver.HIGHS: f"{_HERE}.highs",
    Solver.CP_SAT: f"{_HERE}.cpsat",
    Solver.MATHOPT: f"{_HERE}.mathopt",
    Solver.CBC: f"{_HERE}.cbc",
}
_LIBRARIES = {
    Solver.HIGHS: "highspy",
    Solver.CP_SAT: "ortools.sat.python.cp_model",
    Solver.MATHOPT: "ortools.math_opt.python.mathopt",
    Solver.CBC: "pulp",
}


class BackEnd(Protocol):
    """The interface of a solver's module: its function ``solve``."""

    def solve(self, request: Request) -> Solution:
        """Solve ``request``."""


def load(solver: Solver) -> BackEnd:
    """Load the library of ``solver``, and return the module that calls it."""
    importlib.import_module(_LIBRARIES[solver])
    return cast("BackEnd", importlib.import_module(_MODULES[solver]))


def failed(message: str) -> Solution:
    """The solution that reports a failed solver, with the reason ``message``."""
    return Solution(SolveStatus.FAILED, None, -float("inf"), 0.0, message)


def unavailable(solver: Solver, cause: BaseException) -> str:
    """Message that explains why ``solver`` could not be loaded, with a remedy."""
    package = _LIBRARIES[solver].partition(".")[0]
    return (
        f"can't be loaded: {type(cause).__name__}: {cause} "
        f"(install the package {package}, or use another solver)"
    )


def guarded(solver: Solver, run: Callable[[Request], Solution], request: Request) -> Solution:
    """Result of ``run(request)``; an exception becomes the solution of a failed solver."""
    try:
        return run(request)
    except Exception as cause:  # noqa: BLE001 - the caller has a plan to fall back on
        return failed(f"the solver {solver} broke: {type(cause).__name__}: {cause}")


def send(stream: IO[bytes], message: object) -> None:
    """Write ``message`` to the pipe of a solver's process."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(PREFIX, "big") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> object:
    """Read one message from the pipe of a solver's process.

    Raises:
        EOFError: the stream ended within a message or before it.
        ValueError: the data are not a message.
    """
    prefix = stream.read(PREFIX)
    length = int.from_bytes(prefix, "big")
    if len(prefix) == PREFIX and length > LONGEST:
        raise ValueError("not a message")
    data = stream.read(length)
    if len(prefix) < PREFIX or len(data) < length:
        raise EOFError("the stream ended")
    try:
        return pickle.loads(data)
    except Exception as cause:
        raise ValueError("not a message") from cause


def main() -> None:
    """Run the child process: answer requests from standard input on standard output."""
    solver = Solver(sys.argv[1])
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Keep the solver's output out of the messages, and keep it from reading requests.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    pending: SimpleQueue[Request] = SimpleQueue()
    Thread(target=_listen, args=(requests, pending), daemon=True).start()
    try:
        back_end = load(solver)
    except Exception as cause:  # noqa: BLE001 - reported to the parent
        send(answers, unavailable(solver, cause))
        return
    send(answers, "")
    while True:
        request = pending.get()
        send(answers, guarded(solver, back_end.solve, request))


def _listen(requests: IO[bytes], pending: SimpleQueue[Request]) -> None:
    """Queue requests for the solver; at the end of input, exit the process at once."""
    try:
        while True:
            pending.put(cast("Request", receive(requests)))
    except (EOFError, ValueError):
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)


if __name__ == "__main__":
    main()
