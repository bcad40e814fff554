"""Rehearsal of a scenario: the service's refusals, collected before Spark starts.

The service is started alone, in a temporary folder. The streams are registered, and each query is
planned standalone: a query that is refused here would also be refused in the replay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from anabranch_client.errors import ApiError, RefusedError, all_of
from anabranch_client.processes.pipeline import running
from anabranch_client.replay.player import register_stream
from anabranch_client.replay.replay import step_spec
from anabranch_client.replay.scenario import Scenario, ScenarioQuery
from anabranch_client.rest.api import Client, query_body

#: Prefix of the fields in errors about the only query of a dry run.
_ADDED = "add.0."


def rehearse(scenario: Scenario) -> None:
    """Check all streams and queries of a scenario with a temporary service.

    Raises:
        RefusedError: naming each refused stream and query.
        ApiError: the service failed.
        ProcessError: the service did not start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-rehearsal-") as home,
        running(step_spec(scenario, Path(home), None)) as pipeline,
        pipeline.start_service() as client,
    ):
        refusals = list(refused(scenario, client))
    if refusals:
        raise all_of(refusals)


def refused(scenario: Scenario, client: Client) -> Iterator[RefusedError]:
    """The refusals of the service at ``client``; of queries only if all streams are accepted."""
    streams: list[RefusedError] = []
    for stream in scenario.streams:
        streams += _asked(f"streams.{stream.name}", partial(register_stream, stream, client))
    yield from streams
    for query in () if streams else scenario.queries:
        yield from _asked(f"queries.{query.name}", partial(_plan, query, client))


def _asked(place: str, ask: Callable[[], object]) -> Iterator[RefusedError]:
    try:
        ask()
    except ApiError as error:
        if not 400 <= error.status < 500:
            raise
        field = error.field.removeprefix(_ADDED)
        yield RefusedError(
            error.message, field=f"{place}.{field}" if field else place, remedy=error.remedy
        )


def _plan(query: ScenarioQuery, client: Client) -> object:
    body = query_body(query.sql, None, query.name, query.window)
    return client.dry_run([body], deadline=0, detail="summary")
