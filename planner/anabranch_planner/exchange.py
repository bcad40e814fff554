"""What the control plane and the data plane say to each other, and under which Redis keys.

Pure data: no I/O happens here. The service writes rulesets and control, the runtime writes
progress, activations and statistics; neither imports the other, both import this module.

Protocol:

* The runtime appends :class:`Boundary` documents to the list ``Keys.boundaries``: one with
  ``epoch = -1`` when it starts, then one after the last batch of every epoch, with that epoch's
  statistics. The service answers each by publishing the ruleset of a later epoch: ``epoch + 1``
  in step mode (``replay``: the runtime waits for it), ``epoch + 2`` live (``epoch = -1`` is
  always answered with epoch 0). A published ruleset never changes (``SET NX``). Live, an epoch also
  ends by time where something has been registered, so epochs may have no batch at all.
* Where nothing has been published for an epoch the runtime goes on with the newest older one.
* ``Keys.gate`` holds the number of batches that may start (absent: no limit).
* ``Keys.stop`` set to anything asks the runtime to finish its batch and leave.
* ``Keys.runtime`` is the heartbeat: a JSON :class:`Progress`, rewritten after every batch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from anabranch_planner.statistics import JoinSample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_planner.model import Equality, RelationId


class Mode(StrEnum):
    """Who waits for whom: ``LIVE`` never for the planner, ``STEP`` (replay) at every boundary.

    So a boundary is answered with the epoch after the next one, or with the next.
    """

    LIVE = "live"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Keys:
    """Redis key names under one namespace (one pipeline per namespace).

    >>> Keys("demo").ruleset(3)
    'demo:ruleset:3'
    """

    namespace: str = "anabranch"

    def _key(self, *parts: object) -> str:
        return ":".join((self.namespace, *map(str, parts)))

    @property
    def streams(self) -> str:
        """Hash: stream name -> JSON stream record (service)."""
        return self._key("streams")

    @property
    def queries(self) -> str:
        """Hash: query id -> JSON query record (service)."""
        return self._key("queries")

    @property
    def settings(self) -> str:
        """String: what has been set at run time, JSON (service)."""
        return self._key("settings")

    def ruleset(self, epoch: int) -> str:
        """String: the ruleset's wire document (service, immutable)."""
        return self._key("ruleset", epoch)

    def epoch(self, epoch: int) -> str:
        """String: the epoch record: plan, costs, explain (service, immutable)."""
        return self._key("epoch", epoch)

    @property
    def published(self) -> str:
        """Sorted set: published epoch numbers, scored by themselves (service)."""
        return self._key("published")

    @property
    def boundaries(self) -> str:
        """List: JSON :class:`Boundary` documents (runtime appends, service reads by index)."""
        return self._key("boundaries")

    @property
    def cursor(self) -> str:
        """String: how many boundaries the service has answered (service)."""
        return self._key("cursor")

    @property
    def gate(self) -> str:
        """String int: batches that may start; absent means no limit (client)."""
        return self._key("gate")

    @property
    def stop(self) -> str:
        """String: present when the runtime is asked to leave."""
        return self._key("stop")

    @property
    def runtime(self) -> str:
        """String: JSON :class:`Progress` (runtime)."""
        return self._key("runtime")

    @property
    def activations(self) -> str:
        """Hash: query id -> JSON :class:`Activation` (runtime)."""
        return self._key("activations")

    def statistics(self, epoch: int) -> str:
        """String: the statistics of ``epoch`` as in :class:`Snapshot` (runtime)."""
        return self._key("statistics", epoch)


@dataclass(frozen=True, slots=True)
class EdgeStatistics:
    """One edge during one epoch.

    Attributes:
        probes: tuples sent.
        matches: matches found before any check of time bounds or residuals.
        seconds: of CPU.
        pairs: combinations of a probing tuple and a stored row of an earlier batch that the
            probes stood for, whether an index spared looking at them or not.
        hits: those among ``pairs`` whose keys agree. Rows of the same batch are left out of
            both, because only some of them arrived before the probing tuple.
    """

    probes: int
    matches: int
    seconds: float
    pairs: int = 0
    hits: int = 0


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """One store at the end of an epoch."""

    rows: int
    bytes: int
    segments: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The statistics of one epoch. Implements :class:`anabranch_planner.statistics.Statistics`.

    Attributes:
        batches: how many batches the epoch had; all rates below are per batch of history seen.
        arrivals: relation -> tuples that arrived so far (all epochs, after the local filter).
        total_batches: batches so far.
        distincts: relation -> {comma-joined sorted attributes -> distinct values so far}.
        streams: stream -> {"input", "late", "invalid"} tuples so far.
        edges, stores: measured.
        spans: stream -> microseconds between the least and the greatest event time so far.
        steps: what edges have told about sub-joins, this epoch's and what is remembered of
            earlier ones (``optimiser.measured``).
    """

    epoch: int
    batches: int
    total_batches: int
    arrivals: dict[str, int] = field(default_factory=dict)
    distincts: dict[str, dict[str, float]] = field(default_factory=dict)
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    edges: dict[str, EdgeStatistics] = field(default_factory=dict)
    stores: dict[str, StoreStatistics] = field(default_factory=dict)
    spans: dict[str, int] = field(default_factory=dict)
    steps: tuple[JoinSample, ...] = ()

    def cardinality(self, relation: RelationId) -> float | None:
        """Tuples of ``relation`` seen so far; None if the runtime has not met it.

        An unfiltered relation is its stream, which is counted whether a query reads it or not; a
        filtered one is counted from its first query on.
        """
        stream = self.streams.get(relation)
        if stream is not None:
            return float(max(stream["input"] - stream["late"] - stream["invalid"], 1))
        seen = self.arrivals.get(relation)
        return None if seen is None else float(max(seen, 1))

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Distinct values seen so far of the sorted attribute combination."""
        return self.distincts.get(relation, {}).get(",".join(sorted(attributes)))

    def selectivity(self, predicate: Equality) -> float | None:
        """Not measured per predicate: the cost model derives it from distinct counts."""
        return None

    def span(self, relation: RelationId) -> float | None:
        """How much event time the relation's stream has covered so far; None without any."""
        known = self.spans.get(relation, self.spans.get(relation.rpartition("[")[0]))
        return float(known) if known else None

    def samples(self) -> Sequence[JoinSample]:
        """What edges have told so far."""
        return self.steps

    def to_json(self) -> dict[str, Any]:
        """A JSON document; :meth:`from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(doc: dict[str, Any]) -> Snapshot:
        """The snapshot that :meth:`to_json` wrote."""
        return Snapshot(
            **{
                **doc,
                "edges": {k: EdgeStatistics(**v) for k, v in doc.get("edges", {}).items()},
                "stores": {k: StoreStatistics(**v) for k, v in doc.get("stores", {}).items()},
                "steps": tuple(JoinSample.from_json(s) for s in doc.get("steps", ())),
            }
        )


@dataclass(frozen=True, slots=True)
class Boundary:
    """The end of an epoch (``epoch = -1``: the runtime has started)."""

    epoch: int
    next_batch: int
    snapshot: dict[str, Any] | None = None

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> Boundary:
        """The boundary that :meth:`dumps` wrote."""
        return Boundary(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Visibility:
    """From when on an alias's stored tuples are visible: batch, and event time in microseconds."""

    batch: int
    event_time: int | None


@dataclass(frozen=True, slots=True)
class Activation:
    """What the runtime fixed when it activated a query, and what it has done since.

    Attributes:
        activated_batch: first batch whose arrivals can complete a result.
        expired_batch: first batch whose arrivals no longer can; None while active.
        visible_from: per alias.
        complete_from: microseconds; None: complete from the first answer (``complete``
            ``"always"``) or never over full history that was missed (``"never"``).
        results: results emitted so far.
    """

    activated_batch: int
    visible_from: dict[str, Visibility]
    complete_from: int | None = None
    complete: str = "always"
    expired_batch: int | None = None
    results: int = 0

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> Activation:
        """The activation that :meth:`dumps` wrote."""
        doc = json.loads(text)
        seen = {a: Visibility(**v) for a, v in doc.pop("visible_from").items()}
        return Activation(visible_from=seen, **doc)


@dataclass(frozen=True, slots=True)
class Progress:
    """The runtime's heartbeat.

    Attributes:
        state: ``starting``, ``running``, ``idle``, ``stopped`` or ``failed``.
        committed: batches committed so far (the next batch's number).
        epoch: the epoch of the last committed batch (-1 before the first).
        epoch_starts: epoch -> its first batch, for the epochs so far.
        ruleset_epoch: which published ruleset the running epoch goes by.
        streams: stream -> {"input", "late", "invalid"} tuples so far.
        results: query -> results so far.
        probes: epoch -> tuples probed so far in it.
        exhausted: whether every recorded source has been read to its end.
    """

    state: str
    committed: int = 0
    epoch: int = -1
    epoch_starts: dict[str, int] = field(default_factory=dict)
    ruleset_epoch: int = -1
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    probes: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    batch_seconds: float = 0.0
    processing_seconds: float = 0.0
    exhausted: bool = False
    error: str | None = None

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def loads(text: str | bytes) -> Progress:
        """The progress that :meth:`dumps` wrote."""
        return Progress(**json.loads(text))
