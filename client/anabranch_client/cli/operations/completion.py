"""``anabranch completion``: completion of commands, options and names in a shell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anabranch_client.errors import ClientError
from anabranch_client.rest.token import given_token

if TYPE_CHECKING:
    from anabranch_client.rest.api import Client

#: Environment variable by which a shell requests its script, or completions.
_VARIABLE = "_ANABRANCH_COMPLETE"
#: Maximum seconds of a request for names, and maximum number of names.
_SECONDS, _MOST = 2.0, 1000


def completion(
    context: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.")],
) -> None:
    """Write the script that completes commands, options and names of queries and streams.

    In ~/.bashrc: eval "$(anabranch completion bash)". In ~/.zshrc, after compinit:
    eval "$(anabranch completion zsh)". Names come from the service at --url or ANABRANCH_URL.
    """
    os.environ[_VARIABLE] = f"source_{shell}"
    root: Any = context.find_root().command
    root.main(args=[], prog_name="anabranch", complete_var=_VARIABLE)


def names_of(
    listed: Callable[[Client, str], Iterable[str]],
) -> Callable[[typer.Context, str], list[str]]:
    """Completion function with names from the service; without names if it does not answer.

    Args:
        listed: lists the names that may begin with a text.
    """

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from anabranch_client.rest.api import DEFAULT_URL, Client

        url = context.params.get("url") or os.environ.get("ANABRANCH_URL") or DEFAULT_URL
        try:
            token = given_token(context.find_root().params.get("token_file"))
            with Client(url.rstrip("/"), timeout=_SECONDS, token=token) as client:
                return [name for name in listed(client, incomplete) if name.startswith(incomplete)]
        except ClientError:
            return []

    return complete


def query_names(client: Client, beginning: str) -> Iterable[str]:
    """Names of queries that contain a text."""
    return (query.id for query in islice(client.queries(find=beginning or None), _MOST))


def stream_names(client: Client, beginning: str) -> Iterable[str]:
    """Names of all streams; the shell takes the matching ones."""
    return (stream.name for stream in client.streams())
