"""``anabranch results``: merge result files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch_client.cli.context import Json, show
from anabranch_client.cli.operations.state import DEFAULT, Where, ask
from anabranch_client.render import state as render_state

results = typer.Typer(no_args_is_help=True)


@results.command("merge")
def results_merge(
    where: Where = DEFAULT,
    folder: Annotated[Path, typer.Option("--results", help="The results directory.")] = Path(
        ".anabranch/results"
    ),
    as_json: Json = False,
) -> None:
    """Merge the small files of each query into few large ones; the pipeline may run meanwhile."""
    show(ask(where, "merge-results", str(folder)), render_state.merged, as_json)
