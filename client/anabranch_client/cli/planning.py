"""``anabranch epochs``, ``settings`` and ``plan``: what was planned, by what, and dry runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from anabranch_client.cli.context import Json, Url, connect, show
from anabranch_client.cli.statements import (
    File,
    Sql,
    Structured,
    Windows,
    quoting,
    read_document,
    read_statement,
    read_window,
)
from anabranch_client.errors import UsageError
from anabranch_client.render.dry_run import (
    MAX_LINES,
    assumptions,
    dry_run_detail,
    named_number,
    retentions,
)
from anabranch_client.render.statistics import series_detail, statistics_detail
from anabranch_client.render.tables import (
    current_detail,
    epoch_detail,
    epochs_table,
    read_by_a_person,
    revisions_table,
    settings_table,
)
from anabranch_client.rest.api import DEFAULT_URL, Client, query_body
from anabranch_client.texts import read_utf8
from anabranch_contract.protocol.keys import INTERIMS_KEPT
from anabranch_contract.rest.epochs import CurrentEpoch, EpochOut
from anabranch_contract.rest.names import readable_explain, relation_names

epochs = typer.Typer(no_args_is_help=True, help="Show what was planned.")
planning = typer.Typer(no_args_is_help=True, help="Show and change how epochs are planned.")
plans = typer.Typer(no_args_is_help=True, help="Ask for plans; approve those that wait.")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@epochs.command("list")
def epoch_list(
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List published epochs, newest first."""
    with connect(url) as client:
        found = list(itertools.islice(client.epochs(), limit))
    show(found, epochs_table, as_json)


@epochs.command("show")
def epoch_show(
    number: Annotated[int, typer.Argument(min=0, help="The epoch.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show an epoch and its plan."""
    with connect(url) as client:
        epoch = client.epoch(number)
        show(epoch, lambda found: epoch_detail(_named(found, client)), as_json)


@epochs.command("statistics")
def epoch_statistics(
    number: Annotated[int, typer.Argument(min=0, help="An epoch that has ended.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show what was measured in an epoch: streams, stores, edges."""
    with connect(url) as client:
        show(client.epoch_statistics(number), statistics_detail, as_json)


@epochs.command("revisions")
def epoch_revisions(
    number: Annotated[int, typer.Argument(min=0, help="The epoch.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show how the rules of an epoch were revised: why, and what was expected and measured."""
    with connect(url) as client:
        show(client.revisions(number), revisions_table, as_json)


@epochs.command("series")
def epoch_series(
    last: Annotated[int, typer.Option(min=1, max=INTERIMS_KEPT, help="Periods, at most.")] = 60,
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Say what is expected as well.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show what was measured in the newest periods of a few seconds: rates, steps, stores."""
    with connect(url) as client:
        show(client.series(last, forecast=forecast), series_detail, as_json)


def _named(epoch: EpochOut, client: Client) -> EpochOut:
    """The epoch with names for people in its plan."""
    names = relation_names(query.normalised for query in client.queries())
    return epoch.model_copy(update={"explain": readable_explain(epoch.explain, names)})


@epochs.command("current")
def epoch_current(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show the epoch that runs now."""
    with connect(url) as client:
        current = client.current_epoch()

        def detail(found: CurrentEpoch) -> RenderableType:
            named = _named(found.epoch, client)
            return current_detail(found.model_copy(update={"epoch": named}))

        show(current, detail, as_json)


@planning.command("show")
def settings_show(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show what the next epoch is planned by."""
    with connect(url) as client:
        show(client.settings(), settings_table, as_json)


@planning.command("set")
def settings_set(
    optimizer: Annotated[str | None, typer.Option(help="clash, shared or individual.")] = None,
    objective: Annotated[str | None, typer.Option(help="seconds, tuples or paper.")] = None,
    parallelism: Annotated[int | None, typer.Option(help="Partitions per store.")] = None,
    switching: Annotated[
        float | None,
        typer.Option(help="Charge for what the running epoch lacks, part of its cost; 0: none."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Bytes of all store copies, or 'none' for any amount.")
    ] = None,
    copies: Annotated[
        str | None, typer.Option(help="Copies of any store, or 'none' for any number.")
    ] = None,
    intermediate_results: Annotated[
        str | None,
        typer.Option(help="Intermediate results kept, at most: a number, never or any."),
    ] = None,
    solver: Annotated[
        str | None, typer.Option(help="branch, highs, cp-sat, mathopt or cbc.")
    ] = None,
    backfill: Annotated[
        str | None,
        typer.Option(help="Compute the past of new intermediate results: auto, always or never."),
    ] = None,
    backfill_horizon: Annotated[
        float | None,
        typer.Option(help="How long a plan uses them, as multiples of the history so far."),
    ] = None,
    substreams: Annotated[
        int | None,
        typer.Option(help="Kinds of tuples of a stream, by their keys' values, at most; 1: one."),
    ] = None,
    revision_gain: Annotated[
        str | None,
        typer.Option(
            help="Share of its cost that a revision has to save, or 'none' for no revisions."
        ),
    ] = None,
    approval: Annotated[
        str | None,
        typer.Option(help="manual: a plan that changes what runs waits for you; or automatic."),
    ] = None,
    overload: Annotated[
        str | None,
        typer.Option(help="Where input outruns the machine: wait, or ration (probes)."),
    ] = None,
    allocation: Annotated[
        str | None, typer.Option(help="What rations are best for: fair or results.")
    ] = None,
    latency_goal: Annotated[
        float | None,
        typer.Option(help="Seconds from a row's arrival to its results that rations keep."),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(
            help="Share of rationed probes' CPU time to spend, or 'none': as the load allows."
        ),
    ] = None,
    look_ahead: Annotated[
        str | None,
        typer.Option(help="auto: probes ask, where that pays, if later ones can find anything."),
    ] = None,
    hot_keys: Annotated[
        str | None,
        typer.Option(
            help="auto: rows of frequent values go to several hosts, where that pays; or never."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Change some settings from the next planned epoch on; the others stay."""
    given: dict[str, Any] = {
        "optimizer": optimizer,
        "objective": objective,
        "parallelism": parallelism,
        "switching": switching,
        "memory": _limit(memory, "--memory", float),
        "copies": _limit(copies, "--copies", int),
        "intermediate_results": _most(intermediate_results, "--intermediate-results"),
        "solver": solver,
        "backfill": backfill,
        "backfill_horizon": backfill_horizon,
        "substreams": substreams,
        "revision_gain": _limit(revision_gain, "--revision-gain", float),
        "approval": approval,
        "overload": overload,
        "allocation": allocation,
        "latency_goal": latency_goal,
        "capacity": _limit(capacity, "--capacity", float),
        "look_ahead": look_ahead,
        "hot_keys": hot_keys,
    }
    if all(value is None for value in given.values()):
        raise UsageError("nothing to change", field="OPTIONS", remedy="give at least one option")
    with connect(url) as client:
        show(client.update_settings(**given), settings_table, as_json)


@plans.command("dry-run")
def plan_dry_run(
    sql: Sql = None,
    file: File = None,
    structured: Structured = None,
    window: Windows = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the new query.")] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", help="A further query: SQL, name=SQL or name=@file (repeat)."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Plan without this query (repeat).")
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            help="R=tuples, R.a=distinct values, or 'R.a = S.b: selectivity' (repeat).",
        ),
    ] = None,
    width: Annotated[
        list[str] | None, typer.Option("--width", help="R=bytes per tuple (repeat).")
    ] = None,
    ttl: Annotated[
        list[str] | None, typer.Option(help="stream=a duration, or stream=none (repeat).")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="clash, shared or individual.")] = None,
    objective: Annotated[str | None, typer.Option(help="seconds, tuples or paper.")] = None,
    parallelism: Annotated[int | None, typer.Option(help="Partitions per store.")] = None,
    formulation: Annotated[str | None, typer.Option(help="tight or paper.")] = None,
    solver: Annotated[str | None, typer.Option(help="highs, cp-sat, mathopt or cbc.")] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0, help="Seconds to solve in; 0: without a solver.")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Leave out the plan, and cut long lists.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the plan that would be made with more queries, or without some; change nothing."""
    document = read_document(structured)
    queries = []
    if document or sql or file:
        statement = None if document else read_statement(sql, file)
        queries.append(query_body(statement, document, name, read_window(window)))
    queries += [_query(text) for text in add or ()]
    assumed = assumptions(assume or ())
    sent = {f"add.{at}.sql": query.get("sql") for at, query in enumerate(queries)}
    with connect(url) as client, quoting(sent, as_json):
        plan = client.dry_run(
            queries,
            drop=drop or (),
            optimizer=optimizer,
            objective=objective,
            parallelism=parallelism,
            statistics=assumed.cardinalities or None,
            distinct=assumed.distincts or None,
            selectivity=assumed.selectivities or None,
            widths=dict(named_number(text, "--width") for text in width or ()) or None,
            retention=retentions(ttl or ()) or None,
            formulation=formulation,
            solver=solver,
            deadline=deadline,
            detail="summary" if summary else None,
        )
    most = MAX_LINES if read_by_a_person() else None
    show(plan, partial(dry_run_detail, most=most), as_json)


def _query(text: str) -> dict[str, Any]:
    """The query of an ``--add``: SQL, or a name and SQL or a file with SQL."""
    name, equals, rest = text.partition("=")
    if not (equals and _NAME.fullmatch(name)):
        name, rest = "", text
    if rest.startswith("@"):
        rest = read_utf8(Path(rest[1:]), "--add")
    if not rest.strip():
        raise UsageError(
            f"{text!r} is no query", field="--add", remedy="write SQL, name=SQL or name=@file"
        )
    return query_body(rest, None, name or None)


def _most(text: str | None, field: str) -> int | str | None:
    """How many intermediate results may be kept; ``any`` lifts the limit."""
    if text is None or text in ("any", "never"):
        return text
    if not text.isdecimal():
        raise UsageError(
            f"{text!r} is no number of intermediate results",
            field=field,
            remedy="give a whole number, never or any",
        )
    return int(text)


def _limit(text: str | None, field: str, read: Callable[[str], float]) -> float | str | None:
    if text is None or text == "none":
        return text
    try:
        return read(text)
    except ValueError as cause:
        raise UsageError(
            f"{text!r} is no limit", field=field, remedy="give a number, or none"
        ) from cause
