"""Partial results by value: as record batches that can be sent, and back.

The batch is laid out like rows of an intermediate result: ``<label>.<column>``, ``#sigma:<label>``,
``#tau:<label>``. So received rows are a table like any other for the next probe.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from anabranch_contract.plans.needs import Needed
from anabranch_contract.queries.joins import Label
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.storage.partial import Partial, RowSet, Tables
from anabranch_runtime.storage.segment import SIGMA, TAU

_LABELS = b"labels"


def pack(layout: Layout, partial: Partial, needed: Needed) -> pa.RecordBatch:
    """The tuples of ``partial`` with their ``needed`` columns."""
    names, arrays = [], []
    for label, column in sorted(needed.columns_of(partial.start, layout.stream)):
        if label in partial.place:
            names.append(f"{label}.{column}")
            arrays.append(partial.column(label, column))
    for label in sorted(needed.sigmas | {partial.start}):
        if label in partial.place:
            names.append(f"{SIGMA}:{label}")
            arrays.append(pa.array(partial.sigma(label)))
    for label in sorted(needed.taus):
        if label in partial.place and layout.has_event_time(label):
            names.append(f"{TAU}:{label}")
            arrays.append(pa.array(partial.tau(label)))
    found = pa.RecordBatch.from_arrays(arrays, names=names)
    labels = [partial.start, *sorted(partial.place.keys() - {partial.start})]
    return found.replace_schema_metadata({_LABELS: json.dumps(labels)})


def unpack(rows: pa.RecordBatch) -> Partial:
    """The partial result that :func:`pack` has laid out."""
    labels: list[Label] = json.loads(rows.schema.metadata[_LABELS])
    positions = np.arange(rows.num_rows, dtype=np.int32)
    found = RowSet(Tables([BatchTable(rows)]), None, positions)
    place = {label: (0, str(label)) for label in labels}
    return Partial(rows.num_rows, (found,), place, labels[0])
