"""The ``anabranch`` command line.

Exit codes of all commands: 0 success; 1 refused (by the service, or because a folder is in use),
failed, or a check found problems; 2 an argument or an input file can't be used, and nothing has
been started or changed; 130 interrupted. With a code other than 0, standard error has one line per
error, with its place and remedy.

A command's module is imported when the command runs; the help of all commands is in
:data:`COMMANDS`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from anabranch_client.errors import ClientError, UsageError
from anabranch_client.rest.token import TOKEN_FILE

#: Command or group of commands -> its module below ``anabranch_client.cli``, its name in the
#: module, and its line in the help.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "up": ("up:up", "Start a pipeline on this machine: Redis, service and runtime."),
    "down": ("up:down", "Stop the pipeline that runs in a folder."),
    "health": ("operations.health:health", "Show the state of every component."),
    "load": ("operations.health:load", "Show whether the machine keeps up with its input."),
    "lag": ("operations.health:lag", "Show the input that has arrived and is unread."),
    "profile": ("operations.profile:profile", "Measure where the pipeline's CPU time goes."),
    "doctor": ("operations.doctor:doctor", "Check whether a pipeline can run on this machine."),
    "apply": ("apply:apply", "Make the registered queries what a file declares."),
    "support-bundle": ("operations.support:support_bundle", "Collect facts for a support request."),
    "stream": ("streams:streams", "Register, show, change and delete streams."),
    "source": ("streams:sources", "Try sources before their registration."),
    "query": ("runs:queries", "Register, show, change and end queries."),
    "function": ("functions:functions", "Register Python functions for queries."),
    "epochs": ("planning:epochs", "Show published epochs and their measurements."),
    "plan": ("approval:plans", "Dry-run plans; approve or refuse a held plan."),
    "settings": ("planning:planning", "Show and change planning settings."),
    "results": ("results:results", "Maintain result files."),
    "state": ("operations.state:state", "Inspect, verify and compact stored state."),
    "token": ("operations.access:tokens", "Create, list and revoke tokens."),
    "completion": ("operations.completion:completion", "Complete commands and names in a shell."),
    "audit": ("operations.access:audit", "List changes, pushes or refusals and their callers."),
    "replay": ("replay:replay", "Run recorded streams through a pipeline of their own."),
    "demo": ("replay:demo", "Plan, run and check five joins over TPC-H."),
}


def loaded(name: str) -> Any:
    """Import a command, or a group of commands, of :data:`COMMANDS`."""
    place, line = COMMANDS[name]
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"anabranch_client.cli.{module}"), attribute)
    holder = typer.Typer(callback=lambda: None, add_completion=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name, help=line)
    else:
        holder.command(name)(found)
    group: Any = typer.main.get_command(holder)
    return group.commands[name]


class ClientCommands(TyperGroup):
    """A group whose commands are imported on use, and whose errors are lines on standard error.

    An error in a statement comes with the faulty line.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, line) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import the command that ``args`` begin with."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, command, rest
        # Set this before the import, since errors of the import name the command, too.
        ctx.invoked_subcommand = name
        return name, loaded(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command and report its errors."""
        try:
            return self._run(ctx)
        except ClientError as cause:
            for one in (cause, *cause.further):
                typer.echo(f"error: {one}", err=True)
                if one.excerpt:
                    typer.echo(one.excerpt, err=True)
            raise typer.Exit(cause.exit_code) from cause
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None

    def _run(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as cause:
            package = str(cause.name).partition(".")[0]
            if package.startswith("anabranch_"):
                raise
            from anabranch_client.doctor.requirements import remedy_of

            raise UsageError(
                f"anabranch {ctx.invoked_subcommand} needs {package}, which is not installed",
                remedy=remedy_of(),
            ) from cause


app = typer.Typer(
    cls=ClientCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Continuous multi-way joins over shared streams, planned together, run on Spark.",
)


def _version(asked: bool) -> None:
    if asked:
        from anabranch_client.doctor.requirements import installed

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
            "--version", is_eager=True, callback=_version, help="Show the versions, and exit."
        ),
    ] = False,
) -> None:
    """Continuous multi-way joins over shared streams, planned together, run on Spark."""
    TOKEN_FILE.set(token_file)
