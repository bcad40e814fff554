"""``anabranch token`` and ``anabranch audit``: access tokens and the audit log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from anabranch_client.cli.context import Json, Url, connect, show
from anabranch_client.errors import UsageError
from anabranch_client.render.tables import print_json, table_of
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.times import moment
from anabranch_contract.rest.access import AuditRecord, TokenOut

tokens = typer.Typer(no_args_is_help=True)


@tokens.command("create")
def token_create(
    name: Annotated[str, typer.Argument(help="Name of the token, such as its holder.")],
    role: Annotated[
        Literal["viewer", "editor", "admin", "worker"], typer.Option(help="Role of the token.")
    ],
    ttl: Annotated[
        str | None, typer.Option(help="Time to live, a duration; default: never expires.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new file (mode 0600) for the token.")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Create a token. It is shown once: to standard output, or written to the file in --out."""
    file = None if out is None else _new_file(out)
    try:
        with connect(url) as client:
            made = client.create_token(name, role, ttl=ttl)
    except BaseException:
        if file is not None and out is not None:
            os.close(file)
            out.unlink()
        raise
    if file is not None:
        with os.fdopen(file, "w", encoding="ascii") as target:
            target.write(f"{made.token}\n")
    if as_json:
        document = made.document()
        print_json({**document, "token": str(out)} if out is not None else document)
    elif out is not None:
        typer.echo(f"token {made.id} ({made.role}) is in {out}")
    else:
        typer.echo(f"token {made.id} ({made.role}); it is not shown again:", err=True)
        typer.echo(made.token)


@tokens.command("list")
def token_list(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List all tokens, without their secrets."""
    with connect(url) as client:
        show(client.tokens(), tokens_table, as_json)


@tokens.command("revoke")
def token_revoke(
    ident: Annotated[str, typer.Argument(help="The token's id, as 'token list' shows it.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Revoke a token at once."""
    with connect(url) as client:
        found = client.revoke_token(ident)
    show(found, lambda token: f"token {token.id} is revoked", as_json)


def audit(
    kind: Annotated[
        Literal["change", "push", "refusal"], typer.Option(help="Kind of entries.")
    ] = "change",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of entries.")] = 50,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List changes, pushes or refused requests and their callers, newest first."""
    with connect(url) as client:
        show(client.audit(kind, limit=limit), audit_table, as_json)


def tokens_table(found: Sequence[TokenOut]) -> Table:
    """Table of access tokens, a line each."""
    table = table_of("id", "name", "role", "created", "expires", "last used", "state")
    for token in found:
        state = "revoked" if token.revoked_at else ("usable" if token.usable else "expired")
        times = [moment(at) for at in (token.created_at, token.expires_at, token.last_used_at)]
        table.add_row(token.id, printable(token.name), token.role, *times, state)
    return table


def audit_table(found: Sequence[AuditRecord]) -> Table:
    """Table of audit entries, a line each."""
    table = table_of("at", "who", "role", "client", "request", "status", right=("status",))
    for entry in found:
        who = f"{entry.name} ({entry.token})" if entry.token else entry.name or "nobody"
        request = printable(f"{entry.method} {entry.target}")
        table.add_row(
            moment(entry.at), printable(who), entry.role, entry.client, request, str(entry.status)
        )
    return table


def printable(text: str) -> str:
    r"""Untrusted text with control characters and rich markup escaped.

    >>> printable("a\x1b[2Jb[red]")
    'a?[2Jb\\[red]'
    """
    return escape("".join(c if c.isprintable() else "?" for c in text))


def _new_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as cause:
        raise UsageError(
            f"{path} can't be made: {cause}", field="--out", remedy="name a new file"
        ) from cause
