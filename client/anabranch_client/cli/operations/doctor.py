"""``anabranch doctor``: checks whether a pipeline can run here."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch_client.cli.context import HOME, Folder, Json, interruptible, show, stderr
from anabranch_client.processes.environment import given_redis_url


def doctor(
    folder: Folder = HOME,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the service; 0: any.")
    ] = 8080,
    host: Annotated[str, typer.Option(help="Address that the service listens on.")] = "127.0.0.1",
    as_json: Json = False,
) -> None:
    """Check Python, packages, Java, folder, port and Redis; show the folder's holder.

    One line per check: ok, warn or fail, with the remedy. Exit code 1 if one fails.
    """
    from anabranch_client.doctor.checkup import check_up
    from anabranch_client.doctor.findings import findings_document, findings_table, healthy

    with interruptible(), stderr().status("looking around"):
        findings = list(check_up(folder.resolve(), host, port, given_redis_url()))
    show(findings_document(findings), lambda _: findings_table(findings), as_json)
    if not healthy(findings):
        raise typer.Exit(1)
