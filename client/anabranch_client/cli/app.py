"""The ``anabranch`` command line.

Exit codes of all commands: 0 success; 1 refused (by the service, or because a folder is in use),
failed, or a check found problems; 2 an argument or an input file can't be used, and nothing has
been started or changed; 130 interrupted. Any other code than 0 comes with one line per error on
standard error, with the place and the remedy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch_client.cli import apply as cli_apply
from anabranch_client.cli import approval as cli_approval
from anabranch_client.cli import planning as cli_planning
from anabranch_client.cli import replay as cli_replay
from anabranch_client.cli import results as cli_results
from anabranch_client.cli import runs as cli_runs
from anabranch_client.cli import up as cli_up
from anabranch_client.cli.context import TOKEN_FILE, ClientCommands
from anabranch_client.cli.functions import functions
from anabranch_client.cli.operations import access as cli_access
from anabranch_client.cli.operations import doctor as cli_doctor
from anabranch_client.cli.operations import health as cli_health
from anabranch_client.cli.operations import profile as cli_profile
from anabranch_client.cli.operations import state as cli_state
from anabranch_client.cli.operations import support as cli_support
from anabranch_client.cli.queries import queries
from anabranch_client.cli.streams import sources, streams
from anabranch_client.doctor.packages import installed

app = typer.Typer(
    cls=ClientCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Continuous multi-way joins over shared streams, planned together, run on Spark.",
)
app.command("up")(cli_up.up)
app.command("down")(cli_up.down)
app.command("health")(cli_health.health)
app.command("profile")(cli_profile.profile)
app.command("doctor")(cli_doctor.doctor)
app.command("apply")(cli_apply.apply)
app.command("support-bundle")(cli_support.support_bundle)
app.add_typer(streams, name="stream")
app.add_typer(sources, name="source")
for name, command in cli_runs.COMMANDS.items():
    queries.command(name)(command)
app.add_typer(queries, name="query")
app.add_typer(functions, name="function")
app.add_typer(cli_planning.epochs, name="epochs")
for name, command in cli_approval.COMMANDS.items():
    cli_planning.plans.command(name)(command)
app.add_typer(cli_planning.plans, name="plan")
app.add_typer(cli_planning.planning, name="settings")
app.add_typer(cli_results.results, name="results")
app.add_typer(cli_state.state, name="state")
app.add_typer(cli_access.tokens, name="token")
app.command("audit")(cli_access.audit)
app.command("replay")(cli_replay.replay)
app.command("demo")(cli_replay.demo)


def _version(asked: bool) -> None:
    if asked:
        for name, version in installed("anabranch", "Python", "pyspark").items():
            typer.echo(f"{name} {version or 'is not installed'}")
        raise typer.Exit


@app.callback()
def common(
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the service's token; default: the token in ANABRANCH_TOKEN."),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_version, help="Show the versions, and end."
        ),
    ] = False,
) -> None:
    """Continuous multi-way joins over shared streams, planned together, run on Spark."""
    TOKEN_FILE.set(token_file)
