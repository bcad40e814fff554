"""The table of a query: its columns, and its newest batch."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.views import CHANGE
from anabranch_service.errors import Conflict
from anabranch_service.presenters.records import results_at
from anabranch_service.registry.records import QueryRecord
from anabranch_service.tables.current import TableKind, TableSpec
from anabranch_service.tables.files import ResultFiles


def spec_of(record: QueryRecord) -> TableSpec:
    """Return the specification of a run's table, for no batch yet."""
    meaning = record.normalised
    output = tuple((c.name, c.type) for c in meaning.output)
    if meaning.view is not None:
        changed = tuple((c.name, c.type) for c in meaning.view.changes)
        identity = tuple(meaning.view.identity)
        return TableSpec(record.id, TableKind.VIEW, output, changed, identity)
    own = tuple(pair for pair in output if pair[0] != CHANGE)
    kind = TableKind.RESULTS if len(own) == len(output) else TableKind.CHANGES
    return TableSpec(record.id, kind, own, output)


def newest_batch(
    record: QueryRecord, progress: Progress | None, activation: Activation | None
) -> int:
    """Return the newest batch up to which all results are in the files; -1: none.

    It lists files, since results that are gathered for a commit interval are written in groups.

    Raises:
        Conflict: ``results-elsewhere``, ``results-not-here``: there are no files to read.
    """
    sink = record.sink.to_sink()
    if sink.kind is not SinkKind.PARQUET:
        place = results_at(record, progress)
        raise Conflict(
            "results-elsewhere",
            f"the results of {record.id!r} are {'only counted' if place is None else f'in {place}'}"
            ", and tables are read from result files",
            field="id",
            remedy="read them there, or register the query with the default sink, parquet",
        )
    if progress is None:
        return -1
    home = Path(progress.results_home)
    written = 0 if activation is None else progress.results.get(record.id, activation.results)
    post_join = record.normalised.post_join
    listing = ResultFiles.of(home, record.id)
    if not home.is_dir() or (written and not listing.files and not post_join and not sink.gathers):
        raise Conflict(
            "results-not-here",
            f"the runtime writes results to {home}, which this service can't read",
            field="id",
            remedy="let service and runtime share that directory under the same path",
        )
    committed = progress.committed - 1
    if post_join:
        return committed - progress.telemetry.view_lag.get(record.id, 0)
    # Results of a set operation are counted by branch.
    if sink.gathers and (record.normalised.branches or listing.rows() != written):
        return min(listing.newest, committed)
    return committed


def check_batch(wanted: int | None, newest: Collection[int]) -> int:
    """Return the batch to read tables as of: the wanted one, or the newest that all tables have.

    Raises:
        Conflict: ``batch-not-there``: the results of the wanted batch are not there yet.
    """
    found = min(newest, default=-1)
    if wanted is None:
        return found
    if wanted > found:
        raise Conflict(
            "batch-not-there",
            f"the newest batch with all results is {found}",
            field="batch",
            remedy="ask again later, or leave the batch out",
        )
    return wanted
