"""OpenLineage events of a query's run (spec 2-0-2). Pure functions from records to documents.

A query is a job, and each registration is a run, which starts when the query is activated. The
run's id is derived from the registration, so an event that is sent twice has the same run id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import UUID, uuid5

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.runs import query_of
from anabranch_service.lineage.columns import Origin, direct, indirect
from anabranch_service.registry.lifecycle import Status
from anabranch_service.registry.records import QueryRecord

_SPEC = "https://openlineage.io/spec"
_RUNS = UUID("5b0f1c2e-7d54-4f0c-9b1e-0a6f8c1d2e3f")


def _version() -> str:
    try:
        return version("anabranch")
    except PackageNotFoundError:
        return "0"


VERSION = _version()
PRODUCER = f"urn:anabranch:{VERSION}"


class EventType(StrEnum):
    """Kind of event in the life of a run."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset, with OpenLineage's field names."""

    namespace: str
    name: str

    def document(self) -> dict[str, str]:
        """Return the dataset as JSON."""
        return {"namespace": self.namespace, "name": self.name}


def due(status: Status, sent: EventType | None) -> EventType | None:
    """Return the next event for a query's status, if any; ``sent``: the last event.

    >>> due(Status.ACTIVE, None), due(Status.EXPIRING, EventType.START)
    (<EventType.START: 'START'>, None)
    >>> due(Status.EXPIRED, EventType.START), due(Status.EXPIRED, None)
    (<EventType.COMPLETE: 'COMPLETE'>, None)
    """
    if sent is None:
        return EventType.START if status in (Status.ACTIVE, Status.EXPIRING) else None
    if sent is EventType.START and status is Status.EXPIRED:
        return EventType.COMPLETE
    if sent is EventType.START and status in (Status.FAILED, Status.REJECTED):
        return EventType.FAIL
    return None


def run_id(namespace: str, record: QueryRecord) -> str:
    """Return OpenLineage's run id (UUID), derived from the query's registration."""
    moment = record.created_at.isoformat()
    return str(uuid5(_RUNS, f"{namespace}/{record.id}/{record.sequence}/{moment}"))


def event(
    kind: EventType,
    namespace: str,
    record: QueryRecord,
    query: JoinQuery,
    streams: Mapping[str, StreamRecord],
    now: datetime,
    error: str = "",
) -> dict[str, Any]:
    """Return an event as JSON.

    Args:
        namespace: namespace of the pipeline.
        query: the normal form of ``record``.
        streams: the streams of the query.
        error: the error of a failed run.
    """
    read = {str(r.stream) for part in query.planned for r in part.relations}
    inputs = {name: _input(namespace, streams[name]) for name in sorted(read)}
    run: dict[str, Any] = {
        "processing_engine": _facet("1-1-1/ProcessingEngineRunFacet")
        | {"name": "anabranch", "version": VERSION}
    }
    if error:
        run["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet") | {
            "message": error,
            "programmingLanguage": "SQL",
        }
    return {
        "eventType": str(kind),
        "eventTime": now.isoformat(),
        "producer": PRODUCER,
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run_id(namespace, record), "facets": run},
        "job": {"namespace": namespace, "name": query_of(record.id), "facets": _job(record)},
        "inputs": [
            inputs[name].document() | {"facets": {"schema": _schema(streams[name].columns)}}
            for name in inputs
        ],
        "outputs": [
            _output(namespace, record).document()
            | {
                "facets": {
                    "schema": _schema(_changes(record)),
                    "columnLineage": _column_lineage(query, inputs),
                }
            }
        ],
    }


def _job(record: QueryRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        "jobType": _facet("2-0-3/JobTypeJobFacet")
        | {"processingType": "STREAMING", "integration": "ANABRANCH", "jobType": "QUERY"}
    }
    if record.sql is not None:
        found["sql"] = _facet("1-1-0/SQLJobFacet") | {"query": record.sql, "dialect": "spark"}
    return found


def _changes(record: QueryRecord) -> Any:
    """Return the columns of the rows that a query writes to its sink."""
    view = record.normalised.view
    return record.normalised.output if view is None else view.changes


def _schema(columns: Any) -> dict[str, Any]:
    fields = [{"name": c.name, "type": c.type} for c in columns]
    return _facet("1-1-1/SchemaDatasetFacet") | {"fields": fields}


def _column_lineage(query: JoinQuery, inputs: Mapping[str, Dataset]) -> dict[str, Any]:
    def field(origin: Origin) -> dict[str, Any]:
        kind = "DIRECT" if origin.is_direct else "INDIRECT"
        step = {"type": kind, "subtype": str(origin.how), "description": "", "masking": False}
        place = inputs[origin.stream].document()
        return place | {"field": origin.column, "transformations": [step]}

    return _facet("1-2-0/ColumnLineageDatasetFacet") | {
        "fields": {
            name: {"inputFields": [field(o) for o in origins]}
            for name, origins in direct(query).items()
        },
        "dataset": [field(o) for o in indirect(query)],
    }


def _facet(name: str) -> dict[str, Any]:
    kind = name.partition("/")[2]
    url = f"{_SPEC}/facets/{name}.json#/$defs/{kind}"
    return {"_producer": PRODUCER, "_schemaURL": url}


def _input(namespace: str, stream: StreamRecord) -> Dataset:
    source = stream.source
    fallback = Dataset(f"anabranch://{namespace}", stream.name)
    return _dataset(source.format, source.path, source.options, fallback)


def _output(namespace: str, record: QueryRecord) -> Dataset:
    sink = record.sink
    fallback = Dataset(f"anabranch://{namespace}", f"results/{record.id}")
    return _dataset(sink.format, sink.path, sink.options, fallback)


def _dataset(
    format: str, path: str | None, options: Mapping[str, str], fallback: Dataset
) -> Dataset:
    """Return a dataset named by a path or a topic only, as other addresses may contain secrets."""
    if path is not None and path.startswith("/"):
        return Dataset("file", path)
    if path is not None and "://" in path:
        scheme, _, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        # A user name or password in the address must not be disclosed.
        return Dataset(f"{scheme}://{bucket.rpartition('@')[2]}", key or "/")
    brokers = options.get("brokers", options.get("kafka.bootstrap.servers"))
    topic = options.get("topic", options.get("topics", options.get("subscribe")))
    if format == "kafka" and brokers and topic:
        return Dataset(f"kafka://{brokers.split(',')[0]}", topic)
    return fallback
