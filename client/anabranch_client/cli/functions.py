"""``anabranch function``: users' functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import typer
from rich.table import Table

from anabranch_client.cli.context import Json, Url, Yes, confirm, connect, show
from anabranch_client.cli.operations.access import printable
from anabranch_client.render.tables import table_of
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.times import moment
from anabranch_contract.rest.functions import FunctionOut

functions = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the function.")]


@functions.command("add")
def function_add(
    signature: Annotated[
        str, typer.Argument(help="Such as 'half(x DOUBLE) RETURNS DOUBLE', with Spark's types.")
    ],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="MODULE[:FUNCTION]",
            help="Module that the operator allows (up --functions), and the function in it, if its"
            " name differs.",
        ),
    ],
    kind: Annotated[
        Literal["arrow", "pandas", "row"],
        typer.Option(help="Arguments: Arrow arrays, pandas Series, values of one row."),
    ] = "arrow",
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic/--nondeterministic",
            help="Whether equal arguments always have equal results.",
        ),
    ] = True,
    time_limit: Annotated[
        str | None, typer.Option(help="Time limit of a call, a duration; default: 10 seconds.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="Description for people.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change a function that no live query calls.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Register a function of a Python module."""
    module, _, attribute = source.partition(":")
    with connect(url) as client:
        made = client.add_function(
            signature,
            module,
            replace=replace,
            attribute=attribute or None,
            kind=kind,
            deterministic=deterministic,
            time_limit=time_limit,
            description=description,
        )
    show(made, lambda one: f"function {one.name} is registered (version {one.version})", as_json)


@functions.command("list")
def function_list(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List all functions, and the live queries that call them."""
    with connect(url) as client:
        show(client.functions(), functions_table, as_json)


@functions.command("show")
def function_show(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show a function."""
    with connect(url) as client:
        show(client.function(name), function_detail, as_json)


@functions.command("rm")
def function_remove(
    name: Name, yes: Yes = False, url: Url = DEFAULT_URL, as_json: Json = False
) -> None:
    """Delete a function that no live query calls, after asking for confirmation."""
    with connect(url) as client:
        if not (yes or as_json):
            found = client.function(name)
            typer.echo(f"{found.signature}, from {_source(found)}")
            typer.echo(f"delete {name}")
            confirm(yes=False)
        client.delete_function(name)
    show({"deleted": name}, lambda _: f"function {name} is deleted", as_json)


def functions_table(found: Sequence[FunctionOut]) -> Table:
    """Table of functions, a line each."""
    table = table_of("function", "from", "kind", "version", "called by")
    for one in found:
        table.add_row(one.signature, _source(one), one.kind, one.version, ", ".join(one.queries))
    return table


def function_detail(one: FunctionOut) -> Table:
    """Table of one function's properties."""
    table = table_of("property", "value")
    for name, value in (
        ("signature", one.signature),
        ("from", _source(one)),
        ("kind", str(one.kind)),
        ("deterministic", "yes" if one.deterministic else "no"),
        ("time limit", one.time_limit),
        ("version", one.version),
        ("registered", moment(one.created_at)),
        ("called by", ", ".join(one.queries) or "no query"),
        ("description", printable(one.description)),
    ):
        table.add_row(name, value)
    return table


def _source(one: FunctionOut) -> str:
    return f"{one.module}:{one.attribute}"
