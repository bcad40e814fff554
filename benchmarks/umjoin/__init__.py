"""UMJoin's multi-way join operator and trees of binary joins, over state backends for comparison.

The backend ``lsm`` consists of the runtime's segments, indexes and merges, which pipelines use
directly. No shipped package imports this one. ``docs/state.md`` describes the backends.
"""
