"""``anabranch epochs``, ``settings`` and ``plan``: published epochs, settings, dry runs."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Group, RenderableType

from anabranch_client.cli.context import Json, Url, connect, show
from anabranch_client.cli.options import choices, field_options, option_of, with_options
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
    epoch_diff_detail,
    named_number,
    retentions,
)
from anabranch_client.render.maintained import tables_table
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
from anabranch_contract.rest.documents import nullable
from anabranch_contract.rest.names import readable_explain, relation_names
from anabranch_contract.rest.planning.epochs import CurrentEpoch, EpochOut
from anabranch_contract.rest.planning.plans import DryRunIn
from anabranch_contract.rest.planning.settings import PlanningSettings

epochs = typer.Typer(no_args_is_help=True)
planning = typer.Typer(no_args_is_help=True)
plans = typer.Typer(no_args_is_help=True)

#: Words that options accept in place of a limit; not ``none``, which may mean 0 or no limit.
_WORDS = {"intermediate_results": {"never": "0", "any": "no limit"}}
_LIFTED = {"none": "no limit"}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
#: Fields of a dry run that have an option of the same name.
ASSUMED = ("optimizer", "objective", "parallelism", "formulation", "solver", "deadline")


@epochs.command("list")
def epoch_list(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of epochs, newest first.")] = 20,
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
        tables = tables_table(epoch.tables, MAX_LINES)
        show(epoch, lambda found: Group(epoch_detail(_named(found, client)), *tables), as_json)


@epochs.command("diff")
def epoch_diff(
    first: Annotated[
        int | None,
        typer.Argument(
            min=0, help="The earlier epoch; without SECOND, the later one.", show_default=False
        ),
    ] = None,
    second: Annotated[
        int | None, typer.Argument(min=0, help="The later epoch.", show_default=False)
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the difference between the plans of two epochs, priced with the newest statistics.

    By default between the newest epoch and the one published before it.
    """
    most = MAX_LINES if read_by_a_person() else None
    with connect(url) as client:
        if second is None:
            first, second = None, first
        if second is None:
            newest = next(iter(client.epochs()), None)
            # If no epoch is published, the service reports that for epoch 0.
            second = 0 if newest is None else newest.epoch
        show(client.epoch_diff(second, first), partial(epoch_diff_detail, most=most), as_json)


@epochs.command("statistics")
def epoch_statistics(
    number: Annotated[int, typer.Argument(min=0, help="Number of an epoch that has ended.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the measurements of an epoch: streams, stores, edges."""
    with connect(url) as client:
        show(client.epoch_statistics(number), statistics_detail, as_json)


@epochs.command("revisions")
def epoch_revisions(
    number: Annotated[int, typer.Argument(min=0, help="The epoch.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the revisions of an epoch's rules: reason, cost, and the predicted and measured saving,
    both compared with the rules that ran before."""
    with connect(url) as client:
        show(client.revisions(number), revisions_table, as_json)


@epochs.command("series")
def epoch_series(
    last: Annotated[
        int, typer.Option(min=1, max=INTERIMS_KEPT, help="Maximum number of periods.")
    ] = 60,
    forecast: Annotated[bool, typer.Option("--forecast", help="Include forecasts.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show measurements of the newest periods of a few seconds: rates, steps, stores."""
    with connect(url) as client:
        show(client.series(last, forecast=forecast), series_detail, as_json)


def _named(epoch: EpochOut, client: Client) -> EpochOut:
    """The epoch, with readable names instead of the planner's ids in its plan."""
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
    """Show the settings of the next epoch's plan."""
    with connect(url) as client:
        show(client.settings(), settings_table, as_json)


def settings_set(url: Url = DEFAULT_URL, as_json: Json = False, **given: str | None) -> None:
    """Change planning settings from the next planned epoch on; omitted ones keep their value."""
    changes = {name: _setting(name, text) for name, text in given.items() if text is not None}
    if not changes:
        raise UsageError("nothing to change", field="OPTIONS", remedy="give at least one option")
    with connect(url) as client:
        show(client.update_settings(**changes), settings_table, as_json)


def _setting(name: str, text: str) -> str | float:
    """The value of an option: a number for a numeric setting, else the text.

    Raises:
        UsageError: the setting is numeric, and the text is neither a number nor a word for a limit.
    """
    kind = PlanningSettings.model_fields[name].annotation
    number = next((one for one in (int, float) if one in (kind, *get_args(kind))), None)
    words = _words(name)
    if number is None or text in words:
        return text
    try:
        return number(text)
    except ValueError as cause:
        option = "--" + name.replace("_", "-")
        also = "".join(f", or {word} for {meaning}" for word, meaning in words.items())
        raise UsageError(
            f"{text!r} is not a value of {option}",
            field=option,
            remedy=f"give a {'whole ' if number is int else ''}number{also}",
        ) from cause


def _words(name: str) -> Mapping[str, str]:
    """Words that the option of a numeric setting accepts -> the values that they stand for."""
    return _WORDS.get(name, _LIFTED) if nullable(PlanningSettings, name) else {}


def _options() -> Iterator[inspect.Parameter]:
    """One option per planning setting, with the choices and the help of its definition."""
    for name, field in PlanningSettings.model_fields.items():
        text = " ".join(filter(None, (choices([field.annotation]), PlanningSettings.meaning(name))))
        text += "".join(f" '{word}': {meaning}." for word, meaning in _words(name).items())
        yield option_of(name, str, typer.Option(help=text.replace("`", "'")))


planning.command("set")(with_options(_options())(settings_set))


@plans.command("dry-run")
@with_options(field_options(DryRunIn, ASSUMED))
def plan_dry_run(
    sql: Sql = None,
    file: File = None,
    structured: Structured = None,
    window: Windows = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the new query.")] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", help="A further query: SQL, name=SQL or name=@file (repeatable)."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Plan without this query (repeatable).")
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            help="R=tuples, R.a=distinct values, or 'R.a = S.b: selectivity' (repeatable).",
        ),
    ] = None,
    width: Annotated[
        list[str] | None, typer.Option("--width", help="R=bytes per tuple (repeatable).")
    ] = None,
    ttl: Annotated[
        list[str] | None, typer.Option(help="stream=duration, or stream=none (repeatable).")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Omit the plan, and shorten long lists.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    **assumed: Any,
) -> None:
    """Plan with queries added or dropped and show the result; change nothing."""
    document = read_document(structured)
    queries = []
    if document or sql or file:
        statement = None if document else read_statement(sql, file)
        queries.append(query_body(statement, document, name, read_window(window)))
    queries += [_query(text) for text in add or ()]
    figures = assumptions(assume or ())
    sent = {f"add.{at}.sql": query.get("sql") for at, query in enumerate(queries)}
    with connect(url) as client, quoting(sent, as_json):
        plan = client.dry_run(
            queries,
            drop=drop or (),
            statistics=figures.cardinalities or None,
            distinct=figures.distincts or None,
            selectivity=figures.selectivities or None,
            widths=dict(named_number(text, "--width") for text in width or ()) or None,
            retention=retentions(ttl or ()) or None,
            **assumed,
            detail="summary" if summary else None,
        )
    most = MAX_LINES if read_by_a_person() else None
    show(plan, partial(dry_run_detail, most=most), as_json)


def _query(text: str) -> dict[str, Any]:
    """Parse an ``--add`` of a dry run: SQL, or a name and SQL or a file with SQL."""
    name, equals, rest = text.partition("=")
    if not (equals and _NAME.fullmatch(name)):
        name, rest = "", text
    if rest.startswith("@"):
        rest = read_utf8(Path(rest[1:]), "--add")
    if not rest.strip():
        raise UsageError(
            f"{text!r} is not a query", field="--add", remedy="write SQL, name=SQL or name=@file"
        )
    return query_body(rest, None, name or None)
