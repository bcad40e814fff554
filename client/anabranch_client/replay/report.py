"""The report of a replay: scenario, speed, visible tuples of each query, plan of each epoch.

Times are ISO 8601 in UTC with ``Z``; null: no bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.replay.player import Played
from anabranch_client.replay.scenario import Scenario
from anabranch_client.rest.types import arrow_type
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.rest.documents import iso_time
from anabranch_contract.rest.normalised import OutputInfo
from anabranch_contract.rest.planning.epochs import EpochOut
from anabranch_contract.rest.planning.revisions import RevisionRecord


def finish_results(played: Played, folder: Path) -> dict[str, int]:
    """Count the rows of each query's result files; a query without files gets an empty file.

    The runtime writes an empty file for a query without results, but not for a query that never
    became active: that file's columns come from the service's answer.
    """
    counts: dict[str, int] = {}
    for name, info in played.registered.items():
        if name in played.refused:
            continue
        target = folder / name
        files = sorted(target.glob("*.parquet"))
        if not files:
            target.mkdir(parents=True, exist_ok=True)
            pq.write_table(_empty(info.normalised.output), target / "empty.parquet")
        counts[name] = sum(pq.read_metadata(file).num_rows for file in files)
    return counts


def _empty(columns: list[OutputInfo]) -> pa.Table:
    return pa.schema([(c.name, arrow_type(c.type)) for c in columns]).empty_table()


def make_report(scenario: Scenario, played: Played, results: dict[str, int]) -> dict[str, Any]:
    """The document ``report.json``."""
    progress = played.progress
    read = progress.input_tuples
    return {
        "batches": progress.committed,
        "input_tuples": read,
        "seconds": round(played.seconds, 6),
        "cpu_seconds": round(played.cpu_seconds, 6),
        "input_tuples_per_s": round(read / played.seconds, 3) if played.seconds > 0 else 0.0,
        "peak_rss_bytes": played.peak_rss_bytes,
        "state_bytes": progress.resources.state_bytes,
        "late_tuples": {s.name: _count(played, s.name, "late") for s in scenario.streams},
        "ahead_tuples": {s.name: _count(played, s.name, "ahead") for s in scenario.streams},
        "invalid_tuples": {s.name: _count(played, s.name, "invalid") for s in scenario.streams},
        "queries": {q.name: _query_report(played, q.name, results) for q in scenario.queries},
        "epochs": [_epoch_report(played, epoch) for epoch in played.epochs],
    }


def _count(played: Played, stream: str, what: str) -> int:
    return played.progress.streams.get(stream, {}).get(what, 0)


def _query_report(played: Played, name: str, results: dict[str, int]) -> dict[str, Any]:
    end = played.progress.committed
    activation = played.activations.get(name)
    if activation is not None and activation.activated_batch >= end:
        activation = None
    expired = None if activation is None else activation.expired_batch
    if expired is not None and expired >= end:
        expired = None
    return {
        "status": _status(played, name, activation, expired),
        "error": played.refused.get(name) or _failure(activation),
        "results": results.get(name, 0),
        **(_UNSEEN if activation is None else _seen(activation)),
        "expired_batch": expired,
        "earlier": []
        if activation is None
        else [
            {**_seen(a), "expired_batch": a.expired_batch, "results": a.results}
            for a in activation.earlier
        ],
        "past": _past(activation),
    }


#: Fields of the report for a query that was never activated.
_UNSEEN: dict[str, Any] = {
    "activated_batch": None,
    "complete": None,
    "complete_from": None,
    "visible_from": {},
}


def _seen(activation: Activation) -> dict[str, Any]:
    """First batch of a query, and the first tuple per stream from which its results are
    complete."""
    return {
        "activated_batch": activation.activated_batch,
        "complete": activation.complete,
        "complete_from": iso_time(activation.complete_from),
        "visible_from": {
            alias: {"batch": seen.batch, "event_time": iso_time(seen.event_time)}
            for alias, seen in activation.visible_from.items()
        },
    }


def _past(activation: Activation | None) -> dict[str, Any] | None:
    """Progress of a query's results over tuples stored before it began; None if not requested."""
    past = None if activation is None else activation.past
    return None if past is None else {"status": past.status.value, "results": past.results}


def _failure(activation: Activation | None) -> dict[str, Any] | None:
    """The reason of a query's failure, in the form of the problem document of a refused query."""
    if activation is None or activation.failure is None:
        return None
    failure = activation.failure
    return {
        "type": f"urn:anabranch:problem:{failure.code}",
        "title": "The query has failed",
        "detail": failure.message,
        "code": failure.code,
        "expression": failure.expression,
        "batch": failure.batch,
        "remedy": failure.remedy,
    }


def _status(played: Played, name: str, activation: Activation | None, expired: int | None) -> str:
    if name in played.refused:
        return "rejected"
    if activation is None:
        return "pending"
    if activation.failure is not None:
        return "failed"
    return "active" if expired is None else "expired"


def _revision(found: RevisionRecord) -> dict[str, Any]:
    """A revision in a replay's report, without fields that depend on the clock."""
    return found.model_dump(mode="json", exclude={"epoch", "published_at", "plan_ms"})


def _epoch_report(played: Played, epoch: EpochOut) -> dict[str, Any]:
    return {
        "epoch": epoch.epoch,
        "first_batch": played.progress.epoch_starts.get(str(epoch.epoch)),
        "queries": epoch.queries,
        "optimizer": epoch.optimizer,
        "cost": epoch.cost,
        "individual_cost": epoch.individual_cost,
        "gap": epoch.gap,
        "solve_ms": epoch.solve_ms,
        "probes": played.progress.probes.get(str(epoch.epoch), 0),
        "revisions": [_revision(r) for r in played.revisions if r.epoch == epoch.epoch],
        "plan": epoch.explain,
    }
