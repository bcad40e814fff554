"""The state manifest: everything durable about a pipeline, committed once per batch.

A manifest is a complete snapshot: which batch comes next, which epoch each batch belonged to,
which segments are live, what each store covers, what each query may see, how far event time has
come. Committing a batch is one atomic rename of ``manifest/<batch>.json``; a batch that the newest
manifest already contains is never applied again; files that it does not name are garbage.
"""

from __future__ import annotations

import itertools
import json
import os
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch_planner.exchange import Activation
from anabranch_planner.statistics import JoinSample
from anabranch_runtime.errors import StateError
from anabranch_runtime.state.segment import Segment

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 1
#: Manifests kept beside the newest one.
KEPT = 2


@dataclass(frozen=True, slots=True)
class StoreState:
    """One store generation.

    Attributes:
        spec: the ``StoreSpec`` wire document by which it was written.
        streams: the members' streams.
        filter: for a base store, the texts of the conjuncts that its rows satisfy.
        intervals: closed (first, last) batch intervals that it covers.
        open_since: first batch of the interval that is still growing, or None.
        segments: live segments.
        expired_below: per member, one more than the greatest event time dropped so far
            (microseconds); None where nothing was.
    """

    spec: dict[str, Any]
    streams: tuple[str, ...]
    filter: tuple[str, ...] = ()
    intervals: tuple[tuple[int, int], ...] = ()
    open_since: int | None = None
    segments: tuple[Segment, ...] = ()
    expired_below: tuple[int | None, ...] = ()

    @property
    def is_base(self) -> bool:
        """Whether this is a base relation's store."""
        return len(self.streams) == 1

    def covers(self, now: int) -> tuple[tuple[int, int], ...]:
        """Its intervals, the open one up to and including batch ``now``."""
        if self.open_since is None or self.open_since > now:
            return self.intervals
        return (*self.intervals, (self.open_since, now))


#: The fields of :class:`anabranch_planner.exchange.EdgeStatistics` in order.
EdgeCounts = tuple[int, int, float, int, int]


@dataclass(frozen=True, slots=True)
class StreamState:
    """One stream: its definition and how far it has come.

    Attributes:
        spec: the ``StreamSpec`` wire document.
        max_tau: greatest event time seen (microseconds), late tuples included.
        min_tau: least event time of the tuples that were not late.
        history: (batch, greatest event time before it) at epoch starts, newest last: of several
            with one maximum the newest.
    """

    spec: dict[str, Any]
    max_tau: int | None = None
    min_tau: int | None = None
    history: tuple[tuple[int, int | None], ...] = ()
    input: int = 0
    late: int = 0
    invalid: int = 0

    def watermark(self) -> int | None:
        """Greatest event time seen less the lateness; None where nothing is ever late."""
        if self.max_tau is None or self.spec.get("lateness") is None:
            return None
        return int(self.max_tau - self.spec["lateness"])

    def max_tau_before(self, batch: int) -> int | None:
        """An upper bound of the event times that arrived before ``batch``."""
        for start, greatest in self.history:
            if start >= batch:
                return greatest
        return self.max_tau if batch > 0 else None


#: A stream that is read although no ruleset names it yet: its tuples are counted and passed over.
UNPLANNED = StreamState({})


@dataclass(frozen=True, slots=True)
class Sketch:
    """Distinct-count sketch of one key combination: its smallest distinct hashes."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """A committed state; never changed in place.

    Attributes:
        edges: counts of the current epoch.
        steps: what earlier epochs' edges have told about sub-joins.
    """

    next_batch: int = 0
    epoch: int = -1
    ruleset_epoch: int = -1
    epoch_starts: tuple[tuple[int, int], ...] = ()
    streams: dict[str, StreamState] = field(default_factory=dict)
    stores: dict[str, StoreState] = field(default_factory=dict)
    queries: dict[str, Activation] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, dict[str, Sketch]] = field(default_factory=dict)
    edges: dict[str, EdgeCounts] = field(default_factory=dict)
    probes: dict[str, int] = field(default_factory=dict)
    processing_seconds: float = 0.0
    steps: tuple[JoinSample, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of all live segments."""
        return sum(s.bytes for store in self.stores.values() for s in store.segments)

    def validate(self) -> None:
        """Check the invariants that every committed state has.

        Raises:
            StateError: naming the first that does not hold.
        """
        for name, store in self.stores.items():
            spans = sorted(store.covers(max(self.next_batch - 1, 0)))
            for (_, last), (first, _) in itertools.pairwise(spans):
                if first <= last:
                    raise StateError("overlap", f"store {name} covers batch {first} twice")
            for segment in store.segments:
                if segment.last_batch >= self.next_batch:
                    raise StateError("future-segment", f"store {name} has rows of the future")
                if not store.is_base:
                    continue
                if segment.first_batch < spans[0][0] or segment.last_batch > spans[-1][1]:
                    raise StateError("stray-segment", f"store {name} has rows it does not cover")


class Manifests:
    """The manifest directory of one pipeline."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root / "manifest"
        self._directory.mkdir(parents=True, exist_ok=True)

    def load(self) -> State:
        """The newest committed state (an empty one where there is none)."""
        names = sorted(p for p in self._directory.iterdir() if p.suffix == ".json")
        return read_manifest(names[-1]) if names else State()

    def commit(self, state: State) -> None:
        """Make ``state`` the newest; returns only once it is durable."""
        body = json.dumps(_encode(state), separators=(",", ":"), sort_keys=True)
        document = f'{{"version":{VERSION},"crc":{zlib.crc32(body.encode())},"state":{body}}}'
        path = self._directory / f"{state.next_batch:012d}.json"
        partial = path.with_suffix(".partial")
        with partial.open("w") as file:
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        for old in sorted(self._directory.glob("*.json"))[: -KEPT - 1]:
            old.unlink()


def read_manifest(path: Path) -> State:
    """The state in a manifest file.

    Raises:
        StateError: an unknown version, or a damaged file.
    """
    try:
        document = json.loads(path.read_text())
        version, body = document["version"], document["state"]
    except (ValueError, KeyError) as cause:
        raise StateError("damaged-manifest", f"{path.name} is no manifest: {cause}") from cause
    if version != VERSION:
        raise StateError(
            "unknown-version",
            f"{path.name} has version {version}; this runtime reads version {VERSION}",
            remedy="start it with the release that wrote the state",
        )
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    if zlib.crc32(text.encode()) != document["crc"]:
        raise StateError("damaged-manifest", f"{path.name} does not match its checksum")
    return _decode(body)


def _encode(state: State) -> dict[str, Any]:
    return asdict(state)


def _decode(doc: dict[str, Any]) -> State:
    return State(
        next_batch=doc["next_batch"],
        epoch=doc["epoch"],
        ruleset_epoch=doc["ruleset_epoch"],
        epoch_starts=tuple((e, b) for e, b in doc["epoch_starts"]),
        streams={
            name: StreamState(**{**s, "history": tuple((b, t) for b, t in s["history"])})
            for name, s in doc["streams"].items()
        },
        stores={
            name: StoreState(
                **{
                    **s,
                    "streams": tuple(s["streams"]),
                    "filter": tuple(s["filter"]),
                    "intervals": tuple((a, b) for a, b in s["intervals"]),
                    "segments": tuple(Segment.from_json(x) for x in s["segments"]),
                    "expired_below": tuple(s["expired_below"]),
                }
            )
            for name, s in doc["stores"].items()
        },
        queries={name: Activation.loads(json.dumps(q)) for name, q in doc["queries"].items()},
        arrivals=doc["arrivals"],
        sketches={
            relation: {key: Sketch(tuple(s["hashes"])) for key, s in keys.items()}
            for relation, keys in doc["sketches"].items()
        },
        edges={edge: _edge(counts) for edge, counts in doc["edges"].items()},
        probes=doc["probes"],
        processing_seconds=doc["processing_seconds"],
        steps=tuple(JoinSample.from_json(s) for s in doc.get("steps", ())),
    )


def _edge(counts: list[Any]) -> EdgeCounts:
    """Counts of an edge; manifests of earlier releases have the first three only."""
    probes, matches, seconds, pairs, hits = (*counts, 0, 0)[:5]
    return probes, matches, seconds, pairs, hits
