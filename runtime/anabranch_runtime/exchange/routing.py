"""Destination hosts of probing tuples: the hosts that may have matching rows.

A tuple with a value for the store's partition attribute is sent to the owner of one partition, any
other tuple to all hosts. One probe may read several stores of the same rows, which successive plans
have partitioned differently. Then the tuple is sent once to each host that one of the stores
requires, and is matched with the rows of all these stores there. A stored row is on one host only,
so no pair is found twice. If a store has spread the rows of a hot value, tuples with this value are
sent to the hosts of all partitions that may have such rows (``state.dealt``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from anabranch_contract.plans.needs import Needed
from anabranch_contract.plans.ruleset import KeyPart
from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import I32, Bools, Ints
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.exchange.fleet import Fleet
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.keys import key_vector, partition_of
from anabranch_runtime.state.coverage import Tile
from anabranch_runtime.state.dealt import Dealt
from anabranch_runtime.storage.partial import Partial, RowSet, Tables
from anabranch_runtime.storage.segment import SIGMA, TAU


def destinations(
    layout: Layout,
    fleet: Fleet,
    partial: Partial,
    key: Sequence[KeyPart],
    tiles: Sequence[Tile],
    count: Callable[[Ints], None] | None = None,
) -> Iterator[tuple[int, I32]]:
    """Yield each host that may have matches by ``key``, with the positions of tuples to send there.

    Args:
        count: called with the number of tuples per partition, for every partitioning of the probed
            stores. Tuples that are sent to all hosts are not counted.

    Raises:
        ExpressionError, KeyTypeError: a key can't be evaluated.
    """
    arrays = [layout.probed(partial, part.probe) for part in key]
    alive = np.ones(partial.length, np.bool_)
    for array in arrays:
        if array.null_count:
            alive &= array.is_valid().to_numpy(zero_copy_only=False)
    routes: dict[tuple[int, int], Ints] = {}
    #: Hot values and partitioning -> per host, mask of tuples sent there because of such values.
    dealt: dict[tuple[int, int, tuple[Dealt, ...]], list[Bools]] = {}
    hosts = len(fleet.names)
    everywhere = False
    for tile in tiles:
        store = layout.stores[tile.store]
        if store.partitions == 1:
            routes[-1, 1] = np.full(partial.length, fleet.owners(1)[0], np.int64)
            continue
        parts = ((k.build, k.type) for k in key)
        part = next((i for i, p in enumerate(parts) if p == store.partition), None)
        if part is None:
            everywhere = True
            break
        known, rows = (part, store.partitions), store.dealt_rows
        if known in routes and (rows is None or (*known, store.dealt) in dealt):
            continue
        hashes, owners = key_vector([arrays[part]], [key[part].type]).hashes, fleet.owners(known[1])
        homes = partition_of(hashes, store.partitions)
        routes[known] = owners[homes]
        if count is not None:
            count(np.bincount(homes[alive], minlength=store.partitions))
        if rows is not None:
            dealt[*known, store.dealt] = rows.by_host(hashes, owners, hosts)
    for host in range(hosts):
        wanted: Bools = np.full(partial.length, everywhere)
        for owners in routes.values() if not everywhere else ():
            wanted |= owners == host
        for of_hosts in dealt.values() if not everywhere else ():
            wanted |= of_hosts[host]
        positions = np.flatnonzero(wanted & alive)
        if len(positions):
            yield host, positions.astype(np.int32)


_LABELS = b"labels"


def pack(layout: Layout, partial: Partial, needed: Needed) -> pa.RecordBatch:
    """Return the tuples of ``partial`` with their ``needed`` columns, as a record batch to send.

    Its columns are named as in stores of joins: ``<label>.<column>``, ``#sigma:<label>`` (arrival
    number), ``#tau:<label>`` (event time). So the next probe reads received rows like stored ones.
    """
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
    """Return the partial result in the rows of a message that :func:`pack` has made."""
    labels: list[Label] = json.loads(rows.schema.metadata[_LABELS])
    positions = np.arange(rows.num_rows, dtype=np.int32)
    found = RowSet(Tables([BatchTable(rows)]), None, positions)
    place = {label: (0, str(label)) for label in labels}
    return Partial(rows.num_rows, (found,), place, labels[0])
