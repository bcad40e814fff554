"""Planning of cases in a separate process, so that the process's peak memory is that of the cases.

Protocol: one JSON line per case on standard input; one JSON line per run on standard output, in
the order of the cases, then one with the process's peak memory.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.planner.runs import Case, Run, run, warm_up
from benchmarks.report.figures import ROOT, line

_STATUS = Path("/proc/self/status")


class WorkerError(Exception):
    """The measuring process ended before it had answered."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs of a process in the order of its cases, and the process's peak memory."""

    runs: tuple[Run, ...]
    peak_bytes: int


def measure(cases: Sequence[Case], module: str = __name__, per_case: int = 1) -> Measured:
    """Run ``cases`` one after the other in a new, warmed-up process.

    Args:
        module: main module of the process, which follows the protocol above.
        per_case: number of runs of each case.

    Raises:
        WorkerError: the process crashed or was killed.
    """
    command = [sys.executable, "-m", module]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as process:
        try:
            answer, _ = process.communicate("".join(line(c.to_json()) + "\n" for c in cases))
        except BaseException:
            process.kill()
            raise
    lines = [json.loads(text) for text in answer.splitlines()]
    if process.returncode or len(lines) != per_case * len(cases) + 1:
        next_case = cases[min(len(lines) // per_case, len(cases) - 1)]
        raise WorkerError(
            f"{' '.join(command[1:])} ended with code {process.returncode} after {len(lines)} of "
            f"{per_case * len(cases)} runs, at {next_case}"
        )
    return Measured(tuple(Run(**one) for one in lines[:-1]), lines[-1]["peak_bytes"])


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes.

    On Linux, ``ru_maxrss`` is inherited from the parent process, so it is used only if the kernel
    does not report the peak of this program alone.
    """
    if _STATUS.is_file():
        found = re.search(r"^VmHWM:\s*(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def say(document: dict[str, object]) -> None:
    """Write one line of the protocol."""
    sys.stdout.write(line(document) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Main program of the measuring process."""
    cases = [Case.from_json(json.loads(text)) for text in sys.stdin]
    warm_up(cases)
    for case in cases:
        say(asdict(run(case)))
    say({"peak_bytes": peak_bytes()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
