"""``anabranch profile``: where the pipeline's CPU time goes."""

from __future__ import annotations

from functools import partial
from time import sleep
from typing import Annotated

import typer

from anabranch_client.cli.context import Json, Url, connect, show, stderr
from anabranch_client.errors import ClientError
from anabranch_client.render.profile import profile_detail
from anabranch_client.rest.api import DEFAULT_URL, Client
from anabranch_contract.rest.names import relation_names
from anabranch_contract.rest.profile import CpuProfile


def profile(
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="Length of the measured period.")
    ] = 30.0,
    total: Annotated[
        bool, typer.Option("--total", help="Since the start of the processes, at once.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Measure where the CPU time of the running pipeline goes: by query, step, store, source, sink.

    Shared steps and stores are divided equally among their queries. The period ends with batches.
    Where nothing arrives any more, --total has the queries' CPU time.
    """
    with connect(url) as client:
        found = CpuProfile.since_start(client.profile()) if total else _measured(client, seconds)
        names = {} if as_json else relation_names(q.normalised for q in client.queries())
    show(found, partial(profile_detail, names=names), as_json)


def _measured(client: Client, seconds: float) -> CpuProfile:
    earlier = client.profile()
    with stderr().status(f"measuring for {seconds:g} s"):
        sleep(seconds)
    later = client.profile()
    if not later.run or later.seconds_since(earlier) <= 0:
        raise ClientError(
            f"the runtime has reported no CPU time within {seconds:g} s",
            remedy="see that it runs (anabranch health); name more seconds than a batch takes",
        )
    if (later.run, later.service) != (earlier.run, earlier.service):
        raise ClientError(
            "runtime or service have restarted, or another service has answered",
            remedy="repeat the command",
        )
    return CpuProfile.between(earlier, later)
