"""``anabranch apply``: make the registered queries what a file declares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch_client.cli.context import Json, Url, connect
from anabranch_client.cli.runs import DryRun, Yes, confirm
from anabranch_client.errors import ApiError, ClientError, UsageError, all_of
from anabranch_client.render.changes import change_detail
from anabranch_client.render.excerpt import excerpt
from anabranch_client.render.tables import print_json, print_table
from anabranch_client.replay.document import YamlFile, read_yaml
from anabranch_client.rest.api import DEFAULT_URL, Client
from anabranch_contract.rest.queries import QueryChange

#: What a file may have, and of a query what the file may have for all.
_PARTS = ("queries", "owner", "tags")
#: Statuses of queries that an apply may withdraw.
_GOING_ON = ("pending", "active", "paused")
#: Cells of an excerpt.
_WIDTH = 80


def apply(
    file: Annotated[Path, typer.Option("--file", "-f", help="The declaration, YAML.")],
    dry_run: DryRun = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Also withdraw the owner's queries that are not declared."),
    ] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Make queries what a file declares: register, change or replace them; repeat it as you like.

    Everything is checked before anything is changed. What would be done is shown, and asked.
    """
    found = read_yaml(file, "declaration")
    bodies = declared(found, file)
    owner = found.document.get("owner") if isinstance(found.document, dict) else None
    if prune and owner is None:
        raise UsageError(
            "only the queries of one owner can be withdrawn",
            field="--prune",
            remedy="declare an owner at the top of the file",
        )
    with connect(url) as client:
        changes = _check(client, bodies, found, file)
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
            for name in gone:
                client.delete_query(name)
    actions = {name: str(change.action) for name, change in changes.items()}
    actions |= dict.fromkeys(gone, "withdrawn")
    if as_json:
        print_json({"dry_run": dry_run, "actions": actions})
    else:
        typer.echo(_summary(list(actions.values()), dry_run=dry_run))


def declared(found: YamlFile, path: Path) -> dict[str, dict[str, Any]]:
    """Query -> the body that makes it what the file says.

    Raises:
        UsageError: the file has another shape; names the line.
    """
    document = found.document
    if not isinstance(document, dict) or not isinstance(document.get("queries"), dict):
        raise UsageError(
            f"{path} declares no queries",
            field="queries",
            remedy="write queries: {name: {sql: ...}}",
        )
    for part in document:
        if part not in _PARTS:
            raise _at(found, path, (part,), f"there is no {part!r} in a declaration", "remove it")
    common = {part: document[part] for part in ("owner", "tags") if part in document}
    bodies = {}
    for name, given in document["queries"].items():
        if not isinstance(given, dict):
            raise _at(
                found, path, ("queries", name), "a query has fields", "write sql: ... below it"
            )
        bodies[str(name)] = {**common, **given}
    return bodies


def _check(
    client: Client, bodies: dict[str, dict[str, Any]], found: YamlFile, path: Path
) -> dict[str, QueryChange]:
    """Query -> what a PUT would do.

    Raises:
        ClientError: the service would refuse some; each with its line.
    """
    changes, errors = {}, []
    for name, body in bodies.items():
        try:
            changes[name] = client.put_query(name, body, dry_run=True)
        except ApiError as cause:
            if cause.status in (0, 401, 403) or cause.status >= 500:
                raise
            place = ("queries", name, *cause.field.split("."))
            error = ClientError(
                cause.message, field=_where(found, path, place), remedy=cause.remedy
            )
            if cause.position is not None and isinstance(body.get("sql"), str):
                error.excerpt = excerpt(body["sql"], *cause.position, _WIDTH)
            errors.append(error)
    if errors:
        raise all_of(errors)
    return changes


def _not_declared(client: Client, owner: str, bodies: dict[str, dict[str, Any]]) -> list[str]:
    def others() -> Iterator[str]:
        for query in client.queries():
            if query.owner == owner and query.status in _GOING_ON and query.id not in bodies:
                yield query.id

    return list(others())


def _at(found: YamlFile, path: Path, place: tuple[Any, ...], what: str, remedy: str) -> UsageError:
    return UsageError(what, field=_where(found, path, place), remedy=remedy)


def _where(found: YamlFile, path: Path, place: tuple[Any, ...]) -> str:
    line = found.line(place)
    named = ".".join(str(part) for part in place if part != "")
    return f"{path}: {named}" if line is None else f"{path}, line {line}: {named}"


def _summary(actions: list[str], *, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    parts = [
        f"{actions.count(action)} {would}{action}"
        for action in ("created", "changed", "replaced", "withdrawn")
        if action in actions
    ]
    parts.append(f"{actions.count('none')} as declared")
    return ", ".join(parts)
