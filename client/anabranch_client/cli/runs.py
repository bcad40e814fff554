"""``anabranch query``: replace, end, pause and resume queries; their runs and plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from anabranch_client.cli.context import Json, Url, Yes, confirm, connect, show
from anabranch_client.cli.options import field_options, given, with_options
from anabranch_client.cli.queries import CommitInterval, Name, queries, sink_document
from anabranch_client.cli.statements import (
    DryRun,
    File,
    Sql,
    Structured,
    Windows,
    quoting,
    read_document,
    read_statement,
    read_window,
)
from anabranch_client.render.changes import change_detail, cost_line, leaving_results
from anabranch_client.render.query_plan import query_plan_detail
from anabranch_client.render.statistics import history_table
from anabranch_client.render.tables import print_table, query_detail, runs_table
from anabranch_client.rest.api import DEFAULT_URL, Client
from anabranch_contract.rest.queries import QueryIn, QueryOut, QueryTerms


@queries.command("replace")
@with_options(field_options(QueryIn, ("dialect", "past", "cutover")))
def replace(
    name: Name,
    sql: Sql = None,
    file: File = None,
    structured: Structured = None,
    window: Windows = None,
    sink: Annotated[str | None, typer.Option("--sink-format", help="Another sink.")] = None,
    sink_option: Annotated[
        list[str] | None, typer.Option(help="name=value, for the sink (repeatable).")
    ] = None,
    sink_path: Annotated[str | None, typer.Option(help="Path of the sink's files.")] = None,
    commit_interval: CommitInterval = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    **terms: Any,
) -> None:
    """Replace the statement of a query, after showing the difference and asking for confirmation.

    Its id, sink and settings stay unless others are given. The current run continues until the
    next epoch begins or, with --cutover when-complete, until the new run has caught up; "query
    show" says what that still lacks.
    """
    document = read_document(structured)
    statement = None if document else read_statement(sql, file)
    with connect(url) as client, quoting({"sql": statement}, as_json):
        body = body_of(client.query(name))
        body |= {"sql": statement, "query": document}
        other = sink_document(sink, sink_option, sink_path, commit_interval)
        if other is not None and sink is None:
            other = {**body.get("sink", {}), **other}
        body |= given(window=read_window(window), sink=other, **terms)
        body = {field: value for field, value in body.items() if value is not None}
        change = client.put_query(name, body, dry_run=True)
        if not as_json:
            print_table(change_detail(name, change, body))
            if change.action == "replaced" and change.query is not None:
                past = str(body.get("past", "none"))
                leaving = leaving_results(change.query, past, client.streams())
                typer.echo("\n".join(filter(None, (leaving, _effect(client, name, body)))))
        if not dry_run and change.action != "none":
            confirm(yes=yes or as_json)
            change = client.put_query(name, body, version=change.version)
            typer.echo(f"query {name}: {change.action}", err=True)
    if as_json:
        show(change, lambda _: "", as_json)


def _effect(client: Client, name: str, body: Mapping[str, Any]) -> str:
    """The plan's cost before and after replacing a query, as a line of text."""
    asked = {field: body[field] for field in ("sql", "query", "window", "dialect") if field in body}
    before = client.dry_run()
    return cost_line(before.cost, client.dry_run([{**asked, "id": name}], drop=[name]))


@queries.command("rm")
def query_rm(
    name: Name,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also withdraw the queries that read this query.")
    ] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Withdraw a query, after asking for confirmation; it ends at the next planned epoch.

    Refused while others read it.
    """
    with connect(url) as client:
        if not (yes or as_json):
            found = client.query(name)
            ending = [name, *(found.read_by if cascade else ())]
            typer.echo(f"{name} is {found.status}, with {found.results:,} results")
            typer.echo(f"withdraw {', '.join(ending)}")
            confirm(yes=False)
        client.delete_query(name, cascade=cascade)
    show({"deleted": name}, lambda _: f"query {name} ends at the next change of plan", as_json)


@queries.command("plan")
def query_plan(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show a query's part of the running plan: probe orders, stores, and its share of the cost."""
    with connect(url) as client:
        show(client.query_plan(name), query_plan_detail, as_json)


@queries.command("history")
def query_history(
    name: Name,
    last: Annotated[
        int, typer.Option(min=1, max=1440, help="Number of minutes to show, at most a day.")
    ] = 1440,
    minutes: Annotated[int, typer.Option(min=1, max=240, help="Minutes per row.")] = 60,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show freshness, results and interruptions of a query over the last day."""
    with connect(url) as client:
        query = client.query(name)
        found = client.query_history(query.run, last=last, minutes=minutes)
        show(found, history_table, as_json)


@queries.command("pause")
def pause(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Pause a query: it produces nothing and uses no resources until it is resumed."""
    with connect(url) as client:
        show(client.pause_query(name), query_detail, as_json)


@queries.command("resume")
def resume(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Resume a paused query with a new run."""
    with connect(url) as client:
        show(client.resume_query(name), query_detail, as_json)


@queries.command("runs")
def runs(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List the runs of a query: statement, period and location of results."""
    with connect(url) as client:
        show(client.query_runs(name), lambda found: runs_table(found.items), as_json)


def body_of(query: QueryOut) -> dict[str, Any]:
    """The body of a PUT request that leaves ``query`` unchanged."""
    document = query.document()
    slo = {field: value for field, value in document["slo"].items() if value is not None}
    return {
        **{field: document[field] for field in (*QueryTerms.model_fields, "expires_at")},
        "slo": slo,
    }
