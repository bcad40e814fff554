"""``anabranch apply``: make the registered queries what a file declares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch_client.cli.context import Json, Url, Yes, confirm, connect
from anabranch_client.cli.statements import DryRun
from anabranch_client.declared.declaration import Declaration, read_declaration
from anabranch_client.errors import ApiError, UsageError, all_of
from anabranch_client.render.changes import change_detail
from anabranch_client.render.tables import print_json, print_table
from anabranch_client.rest.api import DEFAULT_URL, Client
from anabranch_contract.rest.queries import QueryChange

#: Statuses of queries that ``apply --prune`` may withdraw.
_GOING_ON = ("pending", "active", "paused")


def apply(
    file: Annotated[
        Path, typer.Option("--file", "-f", help="The declaration: .yaml, .jsonl, or SQL.")
    ],
    dry_run: DryRun = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Also withdraw the owner's queries that are not declared."),
    ] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Register, change or replace queries to match a declaration; idempotent.

    Everything is checked before anything is changed. The changes are shown and need confirmation.
    """
    declared = read_declaration(file)
    bodies, owner = _bodies(declared), declared.owner
    if prune and owner is None:
        raise UsageError(
            "only the queries of one owner can be withdrawn",
            field="--prune",
            remedy="declare an owner at the top of the file",
        )
    with connect(url) as client:
        changes = _check(client, declared)
        gone = [] if not prune else _not_declared(client, str(owner), bodies)
        if not as_json:
            for name, change in changes.items():
                if change.action != "none":
                    print_table(change_detail(name, change, bodies[name]))
            for name in gone:
                typer.echo(f"{name}: withdraw it")
        todo = [name for name, change in changes.items() if change.action != "none"]
        if (todo or gone) and not dry_run:
            confirm(yes=yes or as_json)
            for name in todo:
                changes[name] = client.put_query(name, bodies[name], version=changes[name].version)
            # Newest first: a query reads only older queries.
            for name in reversed(gone):
                client.delete_query(name)
    actions = {name: str(change.action) for name, change in changes.items()}
    actions |= dict.fromkeys(gone, "withdrawn")
    if as_json:
        print_json({"dry_run": dry_run, "actions": actions})
    else:
        typer.echo(_apply_summary(list(actions.values()), dry_run=dry_run))


def _bodies(declared: Declaration) -> dict[str, dict[str, Any]]:
    """Query -> body of the PUT that brings the query into the declared state.

    Raises:
        UsageError: a query has no name, which later applies need to find it.
    """
    errors = [
        declared.refusal(
            one,
            "it has no name",
            field="name",
            remedy='write "-- name: ..." in the line before it, or "name" in JSON',
            kind=UsageError,
        )
        for one in declared.queries
        if one.name is None
    ]
    if errors:
        raise all_of(errors)
    return {str(one.name): dict(one.body) for one in declared.queries}


def _check(client: Client, declared: Declaration) -> dict[str, QueryChange]:
    """Query -> the effect of its PUT, from dry runs.

    Raises:
        ClientError: the service would refuse some queries; each error has its line in the file.
    """
    changes, errors = {}, []
    for one in declared.queries:
        name = str(one.name)
        try:
            changes[name] = client.put_query(name, dict(one.body), dry_run=True)
        except ApiError as cause:
            if cause.status in (0, 401, 403) or cause.status >= 500:
                raise
            refused = declared.refusal(
                one, cause.message, field=cause.field, remedy=cause.remedy, position=cause.position
            )
            errors.append(refused)
    if errors:
        raise all_of(errors)
    return changes


def _not_declared(client: Client, owner: str, bodies: dict[str, dict[str, Any]]) -> list[str]:
    def others() -> Iterator[str]:
        for query in client.queries(owner=owner, status=_GOING_ON):
            if query.id not in bodies:
                yield query.id

    return list(others())


def _apply_summary(actions: list[str], *, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    parts = [
        f"{actions.count(action)} {would}{action}"
        for action in ("created", "changed", "replaced", "withdrawn")
        if action in actions
    ]
    parts.append(f"{actions.count('none')} as declared")
    return ", ".join(parts)
