"""Fault points of the runtime, by the kinds of pipelines that pass them."""

from __future__ import annotations

from anabranch_runtime.faults import Point

#: Points passed only with an object store.
OF_STORE = frozenset((Point.UPLOADED, Point.COMMITTING))
#: Points passed only by a batch with unreadable input.
OF_BAD_INPUT = frozenset((Point.LEFT_OUT,))
#: Points passed only with views.
OF_VIEWS = frozenset((Point.VIEWED, Point.KEEPING))
#: Points passed only with groups of results, or with a failing sink.
OF_GROUPS = frozenset((Point.GROUPING, Point.GROUPED, Point.DELIVERED))
#: Points passed only with Spark's own sources (ingest queries).
OF_INGEST = frozenset((Point.LANDING, Point.LANDED, Point.FORGETTING))
#: Points passed only with a Kafka sink of the runtime (not Spark's).
OF_KAFKA = frozenset((Point.SENT,))
#: Points passed by every pipeline that waits for rulesets and has stages of several tasks.
OF_ALL = frozenset(Point) - (OF_STORE | OF_BAD_INPUT | OF_VIEWS | OF_GROUPS | OF_INGEST | OF_KAFKA)
