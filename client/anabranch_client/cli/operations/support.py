"""``anabranch support-bundle``: a zip for a support request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from anabranch_client.cli.context import HOME, Folder, Url, interruptible, stderr
from anabranch_client.processes.environment import given_redis_url
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.rest.token import TOKEN_FILE, given_token


def support_bundle(
    out: Annotated[Path, typer.Option(help="The zip to write; a new file.")],
    url: Url = DEFAULT_URL,
    folder: Folder = HOME,
) -> None:
    """Collect versions, settings, health, streams, queries, epochs, plan, metrics and logs.

    Contains statements and names, but no rows; secrets are masked. Missing parts are listed.
    """
    from anabranch_client.support.bundle import write_bundle
    from anabranch_client.support.redaction import Redactor, known_secrets

    home = folder.resolve()
    token = given_token(TOKEN_FILE.get())
    redactor = Redactor(known_secrets(os.environ, home) | ({token} if token else set()))
    with interruptible(), stderr().status("collecting"):
        missing = write_bundle(
            out, url.rstrip("/"), home, redactor, token=token, redis_url=given_redis_url()
        )
    for name, reason in missing.items():
        typer.echo(f"left out: {name} ({reason})", err=True)
    typer.echo(str(out))
