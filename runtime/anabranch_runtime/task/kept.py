"""The stored part of a partial result, in a store limited to some values (``plans.partial``)."""

from __future__ import annotations

import numpy as np

from anabranch_contract.plans.ruleset import StoreSpec
from anabranch_contract.queries.joins import AttrRef
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.keys import KeyVector, key_vector
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.task.stores import lenient_keys


def kept_part(layout: Layout, spec: StoreSpec, made: Partial) -> Partial:
    """Combinations of ``made`` that the store keeps."""
    kept = spec.kept
    if kept is None:
        return made
    keys = probed_keys(layout, made, kept.attribute, kept.type)
    mask = np.isin(keys.hashes, np.array(kept.hashes, np.uint64), invert=not kept.listed)
    # A row whose key can't be evaluated is stored.
    return made.where(mask if keys.valid is None else mask | ~keys.valid)


def probed_keys(layout: Layout, rows: Partial, attribute: AttrRef, kind: str) -> KeyVector:
    """The keys of ``rows`` by one attribute; one that can't be evaluated is NULL."""
    return lenient_keys(
        rows.length,
        lambda first, last: key_vector([layout.probed(rows.cut(first, last), attribute)], [kind]),
    )
