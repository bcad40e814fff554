"""Fault points by the pipelines that pass them."""

from __future__ import annotations

from anabranch_runtime.faults import Point

#: Points that only a pipeline with an object store passes.
OF_STORE = frozenset((Point.UPLOADED, Point.COMMITTING))
#: Points that only a batch with unreadable input passes.
OF_BAD_INPUT = frozenset((Point.LEFT_OUT,))
#: Points that only a pipeline with views passes.
OF_VIEWS = frozenset((Point.VIEWED, Point.KEEPING))
#: Points that only a pipeline with groups of results passes, or with a failing sink.
OF_GROUPS = frozenset((Point.GROUPING, Point.GROUPED, Point.DELIVERED))
#: Points that only a pipeline with Spark's own sources (ingest queries) passes.
OF_INGEST = frozenset((Point.LANDING, Point.LANDED, Point.FORGETTING))
#: Points that only a pipeline with a Kafka sink of the runtime's own passes.
OF_KAFKA = frozenset((Point.SENT,))
#: Points that every pipeline passes that waits for rulesets and has stages of several tasks.
OF_ALL = frozenset(Point) - (OF_STORE | OF_BAD_INPUT | OF_VIEWS | OF_GROUPS | OF_INGEST | OF_KAFKA)
