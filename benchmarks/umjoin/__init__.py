"""UMJoin's multi-way join operator and trees of binary joins, over state backends to compare.

The backend ``lsm`` is made of the runtime's segments, indexes and merges; pipelines use these
directly. No package that is shipped imports this one (``docs/state.md`` has the backends).
"""
