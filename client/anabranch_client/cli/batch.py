"""``anabranch query add --file``: register a file's queries, in as few requests as possible."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch_client.declared.statements import statements
from anabranch_client.errors import ApiError, ClientError, UsageError, all_of
from anabranch_client.render.tables import print_json
from anabranch_client.rest.api import Client
from anabranch_client.texts import read_utf8
from anabranch_contract.rest.queries import MAX_BATCH, QueryBatchItem

if TYPE_CHECKING:
    from anabranch_client.declared.declaration import Declaration, Declared

Each = Annotated[
    bool, typer.Option("--each", help="With --file: register each valid query, not all or none.")
]

#: Pattern of an error's field in a refused batch: the query's index, and the query's field.
_OF_A_QUERY = re.compile(r"queries\.(\d+)(?:\.(.+))?")


def has_several(path: Path) -> bool:
    """Whether the file has several queries: not SQL, or SQL with several or named statements."""
    if path.suffix.lower() in (".yaml", ".yml", ".jsonl"):
        return True
    try:
        found = list(statements(read_utf8(path, "--file")))
    except UsageError:
        return False
    return len(found) > 1 or any(one.name is not None for one in found)


def add_several(
    client: Client, declared: Declaration, *, each: bool, dry_run: bool, as_json: bool
) -> None:
    """Register all queries of a file, or (``each``) each valid one, and show the outcome.

    If they need several requests, all queries are checked before the first is registered.

    Raises:
        ClientError: some queries are refused, each with its line; unless ``each``, none is
            registered.
    """
    parts = [
        declared.queries[at : at + MAX_BATCH] for at in range(0, len(declared.queries), MAX_BATCH)
    ]
    items: list[QueryBatchItem] = []
    errors: list[ClientError] = []
    if dry_run or (len(parts) > 1 and not each):
        items, errors = _sent(client, declared, parts, each=each, dry_run=True)
        if errors and not each:
            raise all_of(errors)
    if not dry_run:
        items, errors = _sent(client, declared, parts, each=each, dry_run=False)
        if errors and not each:
            raise _partly(len(items), declared, errors)
    refused = sum(item.query is None for item in items)
    done = len(items) - refused
    if as_json:
        counts = {"dry_run": dry_run, "registered": done, "refused": refused}
        print_json({**counts, "items": [item.document() for item in items]})
    else:
        would = "would be " if dry_run else ""
        texts = [f"{done:,} {would}registered"]
        texts += [f"{refused:,} {would}refused"] if refused else []
        typer.echo(", ".join(texts))
    if errors:
        raise all_of(errors)


def _sent(
    client: Client,
    declared: Declaration,
    parts: Sequence[Sequence[Declared]],
    *,
    each: bool,
    dry_run: bool,
) -> tuple[list[QueryBatchItem], list[ClientError]]:
    """Send the requests; return the outcome of each accepted query, and the refusals."""
    items: list[QueryBatchItem] = []
    errors: list[ClientError] = []
    sent = 0
    for part in parts:
        try:
            bodies = [one.request for one in part]
            items += client.create_queries(bodies, atomic=not each, dry_run=dry_run).items
        except ApiError as cause:
            wrong = _refusals(declared, part, cause)
            if not wrong:
                raise _partly(0 if dry_run else len(items), declared, [cause]) from None
            errors += wrong
            if not dry_run:
                break
        sent += len(part)
        if len(parts) > 1:
            done = "checked" if dry_run else "sent" if each else "registered"
            sys.stderr.write(f"-- {sent:,} of {len(declared.queries):,} {done}\n")
    for one, item in zip(declared.queries, items, strict=False):
        if item.problem is not None:
            problem = item.problem
            at = problem.line, problem.column
            position = None if at[0] is None or at[1] is None else (at[0], at[1])
            errors.append(
                declared.refusal(
                    one,
                    problem.message,
                    field=problem.field,
                    remedy=problem.remedy,
                    position=position,
                )
            )
    return items, errors


def _refusals(
    declared: Declaration, part: Sequence[Declared], cause: ApiError
) -> list[ClientError]:
    """Errors of single queries in a refused request; empty if the whole request was refused."""
    found = []
    errors = cause.problem.get("errors") or []
    for error in errors:
        named = _OF_A_QUERY.fullmatch(str(error.get("field")))
        if named is None:
            return []
        line, column = error.get("line"), error.get("column")
        at = (line, column) if isinstance(line, int) and isinstance(column, int) else None
        remedy = error.get("remedy") or (cause.remedy if len(errors) == 1 else "")
        found.append(
            declared.refusal(
                part[int(named[1])],
                str(error.get("message")),
                field=named[2] or "",
                remedy=str(remedy),
                position=at,
            )
        )
    return found


def _partly(done: int, declared: Declaration, errors: Sequence[ClientError]) -> ClientError:
    """The error of a request refused after earlier ones changed the registry."""
    if not done:
        return all_of(errors)
    first = ClientError(
        f"{done:,} of {len(declared.queries):,} queries are registered, the others are not",
        field=str(declared.path),
        remedy="correct these errors, and add the file with --each: registered queries stay",
    )
    return all_of([first, *errors])
