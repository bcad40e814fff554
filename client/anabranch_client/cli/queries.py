"""``anabranch query``: register, show, change and end queries, and follow their results."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Group

from anabranch_client.cli.batch import Each, add_several, has_several
from anabranch_client.cli.context import Json, Url, connect, show
from anabranch_client.cli.operations.completion import names_of, query_names
from anabranch_client.cli.options import field_options, given, with_options
from anabranch_client.cli.statements import (
    Dialect,
    DryRun,
    File,
    Sql,
    Structured,
    Values,
    Windows,
    quoting,
    read_document,
    read_statement,
    read_values,
    read_window,
)
from anabranch_client.errors import ApiError, UsageError
from anabranch_client.render.explain import explain_detail
from anabranch_client.render.families import families_table, family_table
from anabranch_client.render.query_plan import no_results_notes
from anabranch_client.render.tables import queries_table, query_detail
from anabranch_client.render.view_rows import (
    preview_remarks,
    preview_table,
    view_remarks,
    view_rows,
)
from anabranch_client.rest.api import DEFAULT_URL, Client
from anabranch_client.rest.tail import TailEvent
from anabranch_contract.rest.profile import by_query
from anabranch_contract.rest.queries import QueryIn

queries = typer.Typer(no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="Name of the query.", autocompletion=names_of(query_names))
]

#: Page size of requests; default number of queries shown.
_PAGE, _SHOWN = 1000, 100


#: Fields of a query's registration, and of a change, that become command-line options.
TERMS = ("dialect", "ttl", "expires_at", "priority", "title", "owner", "tags", "past")
CHANGED = ("ttl", "expires_at", "priority", "title", "owner", "tags")
FLAGS = {"tags": "--tag"}
_LatencyGoal = Annotated[
    str | None, typer.Option(help="Latency goal of the results, such as '2 seconds', or 'none'.")
]
_Freshness = Annotated[
    list[str] | None,
    typer.Option(
        help="alias='12 minutes': maximum age of its tuples in results (repeatable), or 'none'."
    ),
]
CommitInterval = Annotated[
    str | None, typer.Option(help="Interval whose results are gathered into one file or delivery.")
]
_Completeness = Annotated[
    str | None,
    typer.Option(help="Minimum share of the results under overload, up to 1, or 'none'."),
]


@queries.command("add")
@with_options(field_options(QueryIn, TERMS, FLAGS))
def query_add(
    sql: Sql = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the query; default: generated.")
    ] = None,
    file: File = None,
    structured: Structured = None,
    window: Windows = None,
    parameter: Values = None,
    sink: Annotated[
        str | None,
        typer.Option(
            "--sink-format",
            help="Sink: parquet (default), delta, iceberg, kafka, webhook, redis-stream, count, "
            "or a format of Spark.",
        ),
    ] = None,
    sink_option: Annotated[
        list[str] | None, typer.Option(help="name=value, for the sink (repeatable).")
    ] = None,
    sink_path: Annotated[str | None, typer.Option(help="Path of the sink's files.")] = None,
    commit_interval: CommitInterval = None,
    latency_goal: _LatencyGoal = None,
    freshness: _Freshness = None,
    completeness: _Completeness = None,
    each: Each = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    **terms: Any,
) -> None:
    """Register a query, or all queries of a file.

    A file of several SQL statements ("-- name: ..." before a statement names it), .yaml or .jsonl
    is registered atomically, unless --each is given. Options are defaults for its queries.
    """
    common = given(
        window=read_window(window),
        parameters=read_values(parameter),
        sink=sink_document(sink, sink_option, sink_path, commit_interval),
        slo=slo_document(latency_goal, freshness, completeness),
        **terms,
    )
    several = sql is None and file is not None and has_several(file)
    alone = sql is None and file is not None and structured is None and (each or dry_run)
    if file is not None and (several or alone):
        if several and (name is not None or structured is not None):
            raise UsageError(
                f"{file} has queries with names of their own",
                field="--name" if name is not None else "--structured",
                remedy="leave this option out: the file defines the queries to register",
            )
        from anabranch_client.declared.declaration import read_declaration

        declared = read_declaration(file, common)
        if name is not None:
            declared = replace(declared, queries=(replace(declared.queries[0], name=name),))
        with connect(url) as client:
            add_several(client, declared, each=each, dry_run=dry_run, as_json=as_json)
        return
    if each or dry_run:
        raise UsageError(
            "it is for the queries of a file",
            field="--each" if each else "--dry-run",
            remedy="query explain shows what a statement would cost",
        )
    document = read_document(structured)
    statement = None if document else read_statement(sql, file)
    with connect(url) as client, quoting({"sql": statement}, as_json):
        query = client.create_query(statement, query=document, name=name, **common)
    show(query, query_detail, as_json)


@queries.command("explain")
def query_explain(
    sql: Sql = None,
    file: File = None,
    dialect: Dialect = None,
    window: Windows = None,
    parameter: Values = None,
    dot: Annotated[bool, typer.Option("--dot", help="Write the plan as a graph.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the join plan and the estimated cost of a statement; register nothing."""
    statement = read_statement(sql, file)
    with connect(url) as client, quoting({"sql": statement}, as_json):
        found = client.explain(
            statement,
            dialect=dialect,
            window=read_window(window),
            parameters=read_values(parameter),
        )
    if dot:
        if found.after is None:
            raise UsageError("there is no plan to draw", field="--dot", remedy="leave it out")
        typer.echo(found.after.dot)
        return
    show(found, explain_detail, as_json)


@queries.command("preview")
def query_preview(
    sql: Sql = None,
    file: File = None,
    dialect: Dialect = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show rows of a statement over the latest rows of its streams; register nothing."""
    statement = read_statement(sql, file)
    with connect(url) as client, quoting({"sql": statement}, as_json):
        found = client.preview(statement, dialect=dialect, limit=limit)
    show(found, preview_table, as_json)
    if not as_json:
        for remark in preview_remarks(found):
            sys.stderr.write(f"-- {remark}\n")


@queries.command("list")
def query_list(
    find: Annotated[
        str | None,
        typer.Option(help="Only queries with this text in name, title, owner, tag or SQL."),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(help="Only queries that read this stream; repeated: all of the streams."),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(help="Only queries in this state; repeated: in any of the states."),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only queries of this owner.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="Only queries with this tag; repeated: with all of the tags."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of queries; default: 100, with --json all."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show all queries.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List queries that match all filters, in order of registration, with their CPU time.

    CPU seconds are a query's share since the runtime's start. A truncated list is noted on
    standard error.
    """
    most = limit or (None if as_json else _SHOWN)
    most = None if everything else most
    with connect(url) as client:
        found = client.queries(
            find=find,
            streams=stream or (),
            status=status or (),
            owner=owner,
            tags=tag or (),
            page=_PAGE if most is None else min(most + 1, _PAGE),
        )
        # Fetch one more than shown, to find out whether the list is truncated.
        shown = list(found if most is None else islice(found, most + 1))
        spent = {} if as_json else by_query(client.profile().uses)
    show(shown[:most], partial(queries_table, spent=spent), as_json)
    if most is not None and len(shown) > most:
        sys.stderr.write(f"-- the first {most:,} are shown: --limit, or --all, shows more\n")


@queries.command("show")
def query_show(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show a query, its normal form, its progress and its cost."""
    with connect(url) as client:
        found = client.query(name)
        spent = {} if as_json else by_query(client.profile().uses)
        silent = found.status == "active" and not (found.results or found.joined_rows)
        reasons = _no_results_because(client, name) if silent and not as_json else []
    detail = partial(query_detail, spent=spent.get(found.id))
    show(found, lambda query: Group(detail(query), *no_results_notes(reasons)), as_json)


def _no_results_because(client: Client, name: str) -> list[str]:
    """Reasons why a query has no results; empty if its plan does not run yet."""
    try:
        return client.query_plan(name).no_results_because
    except ApiError:
        return []


@queries.command("set")
@with_options(field_options(QueryIn, CHANGED, FLAGS))
def query_set(
    name: Name,
    latency_goal: _LatencyGoal = None,
    freshness: _Freshness = None,
    completeness: _Completeness = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    **terms: Any,
) -> None:
    """Change a query's expiry, priority, service levels, title, owner or tags.

    --expires-at never removes the expiry; none removes a title, an owner, or all tags.
    """
    slo = slo_document(latency_goal, freshness, completeness)
    none: dict[str, Any] = {"title": "none", "owner": "none", "expires_at": "never"}
    changes = {
        field: None if value == none.get(field) else value
        for field, value in given(slo=slo, **terms).items()
    }
    if changes.get("tags") == ["none"]:
        changes["tags"] = []
    if not changes:
        raise UsageError("nothing to change", remedy="give at least one option")
    with connect(url) as client:
        show(client.update_query(name, **changes), query_detail, as_json)


def slo_document(
    latency: str | None, freshness: Sequence[str] | None, completeness: str | None
) -> dict[str, Any] | None:
    """Service level objectives from ``--latency-goal``, ``--freshness`` and ``--completeness``.

    >>> slo_document("2 seconds", ["o=12 minutes"], "none")
    {'latency': '2 seconds', 'freshness': {'o': '12 minutes'}, 'completeness': None}
    """
    found: dict[str, Any] = {}
    if latency is not None:
        found["latency"] = None if latency == "none" else latency
    if freshness:
        found["freshness"] = {}
        for text in [] if list(freshness) == ["none"] else freshness:
            alias, _, duration = (part.strip() for part in text.partition("="))
            if not alias or not duration or alias in found["freshness"]:
                raise UsageError(
                    f"{text!r} is not a freshness"
                    if not alias or not duration
                    else f"{alias!r} is given twice",
                    field="--freshness",
                    remedy="write alias='12 minutes', each alias once",
                )
            found["freshness"][alias] = duration
    if completeness is not None:
        try:
            share = None if completeness == "none" else float(completeness)
            if share is not None and not math.isfinite(share):
                raise ValueError
            found["completeness"] = share
        except ValueError:
            raise UsageError(
                f"{completeness!r} is not a share",
                field="--completeness",
                remedy="give a number above 0, at most 1, or 'none'",
            ) from None
    return found or None


def sink_document(
    form: str | None, options: Sequence[str] | None, path: str | None, interval: str | None = None
) -> dict[str, Any] | None:
    """The sink document from ``--sink-format``, ``--sink-option``, ``--sink-path`` and
    ``--commit-interval``; the last one needs no format.

    >>> sink_document("csv", ["header=true"], "/data/out")
    {'format': 'csv', 'options': {'header': 'true'}, 'path': '/data/out'}
    """
    gathered: dict[str, Any] = {} if interval is None else {"commit_interval": interval}
    if form is None:
        if options or path:
            raise UsageError(
                "options without a sink", field="--sink-format", remedy="give --sink-format"
            )
        return gathered or None
    given: dict[str, str] = {}
    for text in options or ():
        name, equals, value = text.partition("=")
        if not equals or not name or name in given:
            raise UsageError(
                f"{text!r} is not an option" if name not in given else f"{name!r} is given twice",
                field="--sink-option",
                remedy="write name=value, each name once",
            )
        given[name] = value
    document: dict[str, Any] = {"format": form, **gathered}
    if given:
        document["options"] = given
    if path is not None:
        document["path"] = path
    return document


@queries.command("tail")
def query_tail(
    name: Name,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the oldest stored results.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Follow a query's committed results, one per line, until it ends or Ctrl-C.

    Gaps and the end are reported on standard error.
    """
    headed = False
    with connect(url) as client:
        for event in client.tail(name, from_start=from_start, limit=limit):
            if event.kind != "row":
                sys.stderr.write(f"-- {_remark(event)}\n")
                continue
            if not as_json and not headed:
                sys.stdout.write("\t".join(event.row) + "\n")
                headed = True
            sys.stdout.write(_line(event.row, as_json) + "\n")
            sys.stdout.flush()


@queries.command("rows")
def query_rows(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of rows.")] = 100,
    scaled: Annotated[
        bool,
        typer.Option(
            "--scaled",
            help="Estimate counts, sums and averages over all joined rows, those lost to load "
            "shedding included.",
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the current rows of a query's aggregates, DISTINCT or LIMIT, one per line."""
    with connect(url) as client:
        found = client.rows(name, limit, scaled=scaled)
    if as_json:
        sys.stdout.write(json.dumps(found.document(), ensure_ascii=False) + "\n")
        return
    sys.stdout.write("\t".join(found.columns) + "\n")
    for row in view_rows(found):
        sys.stdout.write(_line(row, as_json=False) + "\n")
    for remark in view_remarks(found):
        sys.stderr.write(f"-- {remark}\n")


def _line(row: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps(row, ensure_ascii=False)
    cells = ("NULL" if v is None else str(v) for v in row.values())
    return "\t".join(c.translate(_ESCAPES) for c in cells)


#: Characters in values that would break a line or a column -> their replacements.
_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\x1b": "\\e"})


def _remark(event: TailEvent) -> str:
    if event.kind == "gap":
        missed = event.detail.get("missed")
        return f"{'an unknown number of' if missed is None else missed} results left out"
    if event.kind == "live":
        return f"{event.detail.get('results')} results so far; waiting for more"
    return f"end: {event.detail.get('reason')}"


@queries.command("families")
def query_families(
    family: Annotated[
        str | None, typer.Argument(help="Id of a family, to list its queries and constants.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of lines.")] = _SHOWN,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List families: queries that differ only in constants."""
    with connect(url) as client:
        if family is None:
            show(client.families(limit), families_table, as_json)
        else:
            members = client.family(family, page=min(limit, _PAGE))
            show(list(islice(members, limit)), family_table, as_json)
