"""What of a partial result a store keeps, where it keeps some values only (``plans.partial``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anabranch_runtime.expressions.failures import EVALUATION
from anabranch_runtime.index.keys import KeyVector, key_vector

if TYPE_CHECKING:
    from anabranch_contract.plans.ruleset import StoreSpec
    from anabranch_contract.queries.joins import AttrRef
    from anabranch_runtime.epochs.layout import Layout
    from anabranch_runtime.storage.partial import Partial


def kept_part(layout: Layout, spec: StoreSpec, made: Partial) -> Partial:
    """Those of ``made``, combinations of the store's members, that the store keeps."""
    kept = spec.kept
    if kept is None or not made.length:
        return made
    keys = lenient_keys(layout, made, kept.attribute, kept.type)
    mask = np.isin(keys.hashes, np.array(kept.hashes, np.uint64), invert=not kept.listed)
    # Without a key nothing is known of the value.
    return made.where(mask if keys.valid is None else mask | ~keys.valid)


def lenient_keys(layout: Layout, rows: Partial, attribute: AttrRef, kind: str) -> KeyVector:
    """The keys of ``rows`` by one attribute; one that can't be evaluated is NULL. By halves:
    failures are few.
    """
    try:
        return key_vector([layout.probed(rows, attribute)], [kind])
    except EVALUATION:
        if rows.length == 1:
            return KeyVector(np.zeros(1, np.uint64), np.zeros(1, np.bool_), exact=False)
    middle = rows.length // 2
    halves = [
        lenient_keys(layout, half, attribute, kind)
        for half in (rows.cut(0, middle), rows.cut(middle, rows.length))
    ]
    valid = [np.ones(len(h), np.bool_) if h.valid is None else h.valid for h in halves]
    return KeyVector(
        np.concatenate([h.hashes for h in halves]),
        np.concatenate(valid),
        exact=all(h.exact for h in halves),
    )
