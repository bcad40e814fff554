"""``python -m anabranch_planner``: plan the queries of a problem file, without a service.

The only module of the planner that reads or writes files, or reads a clock. Exit codes: 0: a plan
was found, by any method; 2: an argument or file is invalid (one line on standard error gives the
reason); 130: interrupted.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Plan, Solver
from anabranch_planner.command.problem_file import ProblemFile, parse_problem
from anabranch_planner.command.problem_report import Planned, ahead_of, document, doubts, facts
from anabranch_planner.documents.yaml import load_yaml
from anabranch_planner.explain.explain import explain_text
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.demands import Limits
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.program import Program
from anabranch_planner.solvers.registry import solve

UNUSABLE = 2
INTERRUPTED = 130
#: Typer's base class for invalid arguments; the module that defines it depends on Typer's version.
_WrongUsage = cast("type[Exception]", typer.BadParameter.__mro__[1])


class PlannerCommands(TyperGroup):
    """A group of commands whose errors are one line on standard error, and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error becomes one line on standard error and an exit code."""
        try:
            return super().invoke(ctx)
        except PlannerError as cause:
            raise _ended(str(cause), UNUSABLE) from cause
        except _WrongUsage as cause:
            message = cause.format_message() if hasattr(cause, "format_message") else str(cause)
            raise _ended(message, UNUSABLE) from cause
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _ended(message: str, code: int) -> typer.Exit:
    typer.echo("error: " + " ".join(message.split()), err=True)
    return typer.Exit(code)


app = typer.Typer(
    cls=PlannerCommands,
    callback=lambda: None,  # else the only command would have no name
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Plan many multi-way joins over shared streams together, without a service.",
)


@app.command()
def plan(
    problem_file: Annotated[
        str, typer.Argument(metavar="PROBLEM.yaml", help="Problem file; - for standard input.")
    ],
    optimizer: Annotated[Optimizer, typer.Option(help="Optimiser.")] = (Optimizer.CLASH),
    formulation: Annotated[Formulation, typer.Option(help="Form of the integer program.")] = (
        Formulation.TIGHT
    ),
    objective: Annotated[
        Objective | None,
        typer.Option(help="Unit of cost; default: the file's, else tuples.", show_default=False),
    ] = None,
    solver: Annotated[Solver, typer.Option(help="Solver of the integer program.")] = Solver.BRANCH,
    deadline: Annotated[
        float | None, typer.Option(help="Time limit of planning, in seconds.", show_default=False)
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(help="Maximum bytes of all stores; default: the file's.", show_default=False),
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(help="Maximum copies per store; default: the file's.", show_default=False),
    ] = None,
    intermediate_results: Annotated[
        int | None,
        typer.Option(
            help="Maximum intermediate results stored; default: the file's.", show_default=False
        ),
    ] = None,
    substreams: Annotated[
        int,
        typer.Option(
            min=1,
            max=16,
            help="Maximum number of probe orders per stream, each for a part of its key values.",
        ),
    ] = 1,
    look_ahead: Annotated[
        bool, typer.Option(help="Drop tuples that no later probe can match, if it pays.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the solver.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Random seed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Write one line of JSON.")] = False,
) -> None:
    """Plan the queries of a problem file; see docs/planner.md for its format."""
    if deadline is not None and not deadline >= 0:
        raise PlannerError(
            "bad-deadline", f"{deadline} is not a deadline", field="--deadline", remedy="0 or more"
        )
    limit = None if deadline is None or math.isinf(deadline) else deadline
    problem = parse_problem(load_yaml(_read_problem(problem_file)))
    charged = objective or problem.objective or Objective.TUPLES
    limits = replace(
        problem.limits,
        memory=problem.limits.memory if memory is None else memory,
        copies=problem.limits.copies if copies is None else copies,
        mirs=problem.limits.mirs if intermediate_results is None else intermediate_results,
    )
    base = _options(problem, charged, limits)

    def planned_by(chosen: Optimizer) -> tuple[Plan, Deadline, float]:
        began = time.perf_counter()
        timed = Deadline(time.perf_counter, seconds=limit)
        found = optimise(
            problem.queries,
            problem.statistics,
            replace(
                base,
                optimizer=chosen,
                formulation=formulation,
                solver=solver,
                deadline=timed,
                seed=seed,
                threads=threads,
                substreams=substreams,
            ),
        )
        return found, timed, time.perf_counter() - began

    _warm_up(solver)
    found, timed, seconds = planned_by(optimizer)
    beside = {
        other: found if other is optimizer else planned_by(other)[0]
        for other in (Optimizer.INDIVIDUAL, Optimizer.SHARED)
    }
    planned = Planned(
        problem=problem,
        plan=found,
        individual=beside[Optimizer.INDIVIDUAL],
        shared=beside[Optimizer.SHARED],
        ahead=ahead_of(problem, found) if look_ahead else (),
        spent=timed.spent,
        seconds=seconds,
    )
    if as_json:
        typer.echo(json.dumps(document(planned), ensure_ascii=False))
    else:
        _show_plan(planned, problem)


def _options(problem: ProblemFile, objective: Objective, limits: Limits) -> Options:
    """Planner options of ``problem``; options that the file does not set have their defaults."""
    limited = any(x is not None for x in (limits.memory, limits.copies, limits.mirs))
    return Options(
        objective=objective,
        parallelism=problem.parallelism,
        mir=problem.mir,
        partitioning=problem.partitioning,
        limits=limits if limited else None,
    )


def _read_problem(name: str) -> str:
    try:
        if name == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(name).read_bytes().decode("utf-8-sig")
    except OSError as cause:
        raise _file_error(name, cause) from cause
    except UnicodeDecodeError as cause:
        raise PlannerError(
            "malformed-problem", "this is not UTF-8 text", field=name, remedy="name a YAML file"
        ) from cause


def _file_error(name: str, cause: OSError) -> PlannerError:
    reason = (cause.strerror or type(cause).__name__).lower()
    return PlannerError("no-file", reason, field=shlex.quote(name), remedy="check the path")


def _warm_up(solver: Solver) -> None:
    """Load the solver in advance, so that loading it once does not count as planning time.

    Solvers other than HiGHS run in child processes, whose start counts as planning time.
    """
    if solver in (Solver.BRANCH, Solver.HIGHS):
        program = Program()
        program.variable(1.0, integer=True)
        solve(Solver.HIGHS, Request(program))


def _show_plan(planned: Planned, problem: ProblemFile) -> None:
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    found = facts(planned)
    width = max(map(len, found)) + 2
    for name, value in found.items():
        console.print(f"[bold]{name:<{width}}[/bold]{escape(value)}")
    console.print()
    console.print(explain_text(planned.plan, problem.queries), markup=False, end="")
    for title, lines in zip(("assumed", "put right"), doubts(problem, planned.plan), strict=True):
        if lines:
            console.print(f"\n[bold]{title}[/bold]")
            for line in lines:
                console.print(f"  {line}", markup=False)
