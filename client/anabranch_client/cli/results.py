"""Results on the command line: where they go (``query add --sink-...``), and ``query tail``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from anabranch_client.cli.context import Json, Url, connect
from anabranch_client.errors import UsageError
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.rest.tail import TailEvent


def sink_document(
    form: str | None, options: Sequence[str] | None, path: str | None
) -> dict[str, Any] | None:
    """The sink that ``--sink-format``, ``--sink-option`` and ``--sink-path`` describe.

    >>> sink_document("csv", ["header=true"], "/data/out")
    {'format': 'csv', 'options': {'header': 'true'}, 'path': '/data/out'}
    """
    if form is None:
        if options or path:
            raise UsageError(
                "options without a sink", field="--sink-format", remedy="say what writes the sink"
            )
        return None
    given: dict[str, str] = {}
    for text in options or ():
        name, equals, value = text.partition("=")
        if not equals or not name or name in given:
            raise UsageError(
                f"{text!r} is no option" if name not in given else f"{name!r} is given twice",
                field="--sink-option",
                remedy="write name=value, each name once",
            )
        given[name] = value
    document: dict[str, Any] = {"format": form}
    if given:
        document["options"] = given
    if path is not None:
        document["path"] = path
    return document


def query_tail(
    name: Annotated[str, typer.Argument(help="The query.")],
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the oldest results at hand.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many rows.")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Follow a query's results as they are committed, a line each, until it ends or Ctrl-C.

    What is no row (gaps, the end) is said on standard error.
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


def query_rows(
    name: Annotated[str, typer.Argument(help="The query.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Rows at most.")] = 100,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """The rows of a query's view (aggregates, DISTINCT, LIMIT) as they are now, a line each."""
    with connect(url) as client:
        found = client.rows(name, limit)
    if as_json:
        sys.stdout.write(json.dumps(found.document(), ensure_ascii=False) + "\n")
        return
    sys.stdout.write("\t".join(found.columns) + "\n")
    for row in found.rows:
        sys.stdout.write(_line(row, as_json=False) + "\n")
    known = "nothing is known yet" if found.version is None else f"version {found.version}"
    sys.stderr.write(f"-- {len(found.rows)} of {found.total} rows, {known}\n")


def _line(row: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps(row, ensure_ascii=False)
    cells = ("NULL" if v is None else str(v) for v in row.values())
    return "\t".join(c.translate(_ESCAPES) for c in cells)


#: What would break a line or a column.
_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\x1b": "\\e"})


def _remark(event: TailEvent) -> str:
    if event.kind == "gap":
        missed = event.detail.get("missed")
        return f"{'an unknown number of' if missed is None else missed} results left out"
    if event.kind == "live":
        return f"{event.detail.get('results')} results so far; waiting for more"
    return f"end: {event.detail.get('reason')}"
