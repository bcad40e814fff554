"""The ruleset: what workers execute during an epoch. Immutable, versioned, JSON on the wire.

A ruleset maps every *edge label* to the rules for tuples that come in over it. A tuple of relation
``R`` arrives on the edge ``in:R``; the partial results of a probe travel over that probe's own
edge; a probe order ends in a store rule (insert an intermediate result) or an output rule (emit a
query's result).

A store's id identifies its layout: relation or MIR, partition attribute, parallelism, owner and
(for an MIR) its columns and time bounds. A store whose id occurs in consecutive rulesets keeps
growing; a store whose id no longer occurs keeps its rows until nothing needs them
(``semantics.md``).

A *revision* is a ruleset that replaces another within its epoch. It sends tuples over other paths
through the same stores. It may drop stores of intermediate results, but adds no store.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NewType, TypeAlias, cast

from anabranch_contract import codec
from anabranch_contract.codec import Row
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.errors import RulesetError
from anabranch_contract.queries.expressions import Expansion, Expr, Output
from anabranch_contract.queries.joins import (
    AttrRef,
    Label,
    QueryId,
    Relation,
    RelationId,
    Stream,
    StreamName,
)
from anabranch_contract.queries.mirs import MirId
from anabranch_contract.queries.outer_joins import OuterJoin, registered
from anabranch_contract.queries.views import View

VERSION = 1

StoreId = NewType("StoreId", str)
Edge = NewType("Edge", str)


class RulesetId(NamedTuple):
    """Identifier of a ruleset: its epoch, and its revision within the epoch.

    >>> str(RulesetId(7)), str(RulesetId(7, 2)), RulesetId.parse("7.2")
    ('7', '7.2', RulesetId(epoch=7, revision=2))
    """

    epoch: int
    revision: int = 0

    def __str__(self) -> str:
        return f"{self.epoch}.{self.revision}" if self.revision else str(self.epoch)

    @classmethod
    def parse(cls, text: str) -> RulesetId:
        """Parse a ruleset id, the inverse of ``str``.

        Raises:
            ValueError: ``text`` is not a ruleset id.
        """
        epoch, _, revision = text.partition(".")
        return cls(int(epoch), int(revision or 0))


class TimeBound(Row, frozen=True):
    """Time bound: ``later``'s event time is at most ``micros`` after ``earlier``'s (may be < 0)."""

    earlier: Label
    later: Label
    micros: int


class KeyPart(Row, frozen=True):
    """An equality of a probe: ``probe`` of the partial result equals the stored row's ``build``."""

    probe: AttrRef
    build: AttrRef
    type: str


#: A local index of a store: (attribute in the store's namespace, key type), sorted.
IndexSpec: TypeAlias = tuple[tuple[AttrRef, str], ...]


class Presence(Row, frozen=True):
    """Look-ahead filter: it passes a tuple if ``store`` has a row with the tuple's ``key``,
    whatever the row's arrival time (``plans.ahead``).

    Attributes:
        mir, store, key: as in :class:`ProbeRule`; the tuple has all ``probe`` attributes.
    """

    mir: MirId
    store: StoreId
    key: tuple[KeyPart, ...]


class Substreams(Row, frozen=True):
    """The split of the tuples that arrive for the label ``start`` into substreams (PMJoin, 4).

    Every split gives correct results: a tuple follows exactly one probe order per goal. Values with
    equal hashes are in one substream. The split may change with every ruleset.

    Attributes:
        attribute, type: the key attribute of ``start`` by which tuples are split, and its key type.
        groups: sets of key hashes; each is a substream, with numbers from ``others`` on.
        others: number of substreams before the groups. They divide tuples whose key is in no group
            into equal ranges of the key hash. Tuples without a key are in substream 0.
        shares: the expected share of each substream in the arriving tuples when the split was
            chosen; empty: unknown. Only reported loads depend on it.
        aside: substreams that may not probe intermediate results by the attribute, so stores of
            intermediate results may exclude their values; not used by workers.
    """

    start: Label
    attribute: str
    type: str
    groups: tuple[tuple[int, ...], ...] = ()
    others: int = 1
    shares: tuple[float, ...] = ()
    aside: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of substreams of the split."""
        return self.others + len(self.groups)

    def number(self, value: int) -> int:
        """Return the substream of tuples whose key has the hash ``value``.

        >>> halves = Substreams(Label("R"), "a", "bigint", ((7,), (8, 9)), others=2)
        >>> [halves.number(value) for value in (7, 9, 5, 5 << 60)]
        [2, 3, 0, 0]
        >>> halves.number(9 << 60)
        1
        """
        for number, group in enumerate(self.groups, self.others):
            if value in group:
                return number
        return (value >> 32) * self.others >> 32

    def share(self, numbers: Iterable[int]) -> float:
        """Return the expected share of tuples in the substreams ``numbers``; if shares are unknown,
        all substreams have equal ones."""
        shares = self.shares or (1 / self.count,) * self.count
        return sum(shares[number] for number in numbers)


class KeptValues(Row, frozen=True):
    """The key values to which a store of an intermediate result is restricted (``plans.partial``).

    Attributes:
        attribute, type: the key attribute, in the store's namespace, and its key type.
        hashes: key hashes, sorted: of the kept values if ``listed``, else of the excluded values.
    """

    attribute: AttrRef
    type: str
    hashes: tuple[int, ...]
    listed: bool


class HotValue(Row, frozen=True):
    """A value of a store's partition attribute whose new rows are spread over several hosts.

    The runtime records the partitions of spread rows (``state.dealt``). After the hot values have
    changed, probes still read every partition that may have matches.

    Attributes:
        hash: hash of the value in the key type of the partition attribute. Values with equal
            hashes are spread alike.
        hosts: number of hosts over which rows are spread (at least 2), or all if there are fewer.
    """

    hash: int
    hosts: int


def home_partition(value: int, partitions: int) -> int:
    """Return the home partition of the hash ``value``, like the runtime's
    ``index.keys.partition_of`` for arrays of hashes. Rows of a hot value may be in other
    partitions.

    >>> [home_partition(value, 4) for value in (0, 5, 1 << 40)]
    [0, 1, 0]
    """
    return (value & 0xFFFFFFFF) % partitions


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A store copy of a ruleset: its contents, partitions and indexes.

    Attributes:
        members: ``Mir.members``; the namespace of all attribute references below.
        partition: (attribute, key type) that partitions rows; None: they are spread round robin.
        columns: for an intermediate result (MIR) the stored (member, stream column) pairs; empty
            for a base store, which keeps every column of its stream.
        bounds: the time bounds that every stored combination satisfies (MIR only).
        indexes: the local indexes that this epoch's probes use.
        kept: the key values to which its rows are restricted (MIR only); None: all.
        hot: values whose new rows are spread over several hosts, sorted. They may change with every
            ruleset and revision, since they are not part of the layout that the store's id names.
    """

    id: StoreId
    mir: MirId
    members: tuple[Label, ...]
    relations: tuple[RelationId, ...]
    partition: tuple[AttrRef, str] | None
    partitions: int
    owner: str = ""
    columns: tuple[tuple[Label, str], ...] = ()
    bounds: tuple[TimeBound, ...] = ()
    indexes: tuple[IndexSpec, ...] = ()
    kept: KeptValues | None = None

    hot: tuple[HotValue, ...] = ()


class StoreRule(Row, frozen=True):
    """Rule: insert the tuples on ``edge`` into ``store``."""

    edge: Edge
    store: StoreId


@dataclass(frozen=True, slots=True)
class ProbeRule:
    """Rule: probe a store with the tuples on ``edge``, and send matches over the edge ``out``.

    Attributes:
        start: the label of the arriving tuple with which the probe order begins.
        mir: the probed relation or intermediate result (MIR). ``store``: the copy to probe; older
            rows may be in other copies.
        members: the labels joined by the probe, in the order of the MIR's members.
        key: the equalities of the probe; never empty.
        inclusive: labels in ``members`` over the start's stream that precede the start in the
            canonical label order: their tuple may be the arriving one itself; the tuples of all
            other labels must have arrived before it.
        bounds: time bounds to check on matches (the loosest of all rules after the probe).
        residuals: residual conjuncts common to all rules after the probe.
        level: the stage in which the probe runs (0: it reads base stores only).
        fill: base probes, one per member, that together replace the probe of an MIR for epochs
            that no store of the MIR covers.
        substreams: the substreams of ``start`` whose tuples take the probe, if it is the first
            of its order; empty: all of them.
        ahead: look-ahead filters, which drop tuples that can't match in a later probe.
    """

    edge: Edge
    out: Edge
    start: Label
    mir: MirId
    store: StoreId
    members: tuple[Label, ...]
    key: tuple[KeyPart, ...]
    inclusive: tuple[Label, ...] = ()
    bounds: tuple[TimeBound, ...] = ()
    residuals: tuple[Expr, ...] = ()
    level: int = 0
    fill: tuple[FillStep, ...] = ()
    substreams: tuple[int, ...] = ()
    ahead: tuple[Presence, ...] = ()


@dataclass(frozen=True, slots=True)
class FillStep:
    """One of the base probes that together replace the probe of an intermediate result."""

    relation: RelationId
    store: StoreId
    label: Label
    key: tuple[KeyPart, ...]
    inclusive: tuple[Label, ...] = ()
    bounds: tuple[TimeBound, ...] = ()


@dataclass(frozen=True, slots=True)
class BackfillRule:
    """Backfill: fill the intermediate result's store ``store`` from older stored rows.

    Attributes:
        start: the member whose stored rows the backfill reads first.
        steps: probes of the base stores of all other members, which find every combination that
            satisfies the store's bounds. Arrival order does not matter: ``inclusive`` is empty.
    """

    store: StoreId
    start: Label
    steps: tuple[FillStep, ...]


class LatestRule(Row, frozen=True):
    """Rule of a stream with one valid tuple per key: the latest (``Stream.latest``), or in a stream
    of upserts the last row, which deletes the tuple that it replaces.

    Attributes:
        relation: the stream's relation without a filter.
        store: the store of all tuples of ``relation``, with an index over ``key``.
        key: (column, key type), sorted.
    """

    stream: StreamName
    relation: RelationId
    store: StoreId
    key: tuple[tuple[str, str], ...]

    @property
    def index(self) -> IndexSpec:
        """The store's index for look-ups of a key's later tuples."""
        label = Label(self.relation)
        return tuple((AttrRef(label, column), kind) for column, kind in self.key)


@dataclass(frozen=True, slots=True)
class OutputRule:
    """Emit tuples on ``edge`` as results of ``query``, after the query's own checks."""

    edge: Edge
    query: QueryId
    bounds: tuple[TimeBound, ...] = ()
    residuals: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """An active query, as workers need it to emit results.

    Attributes:
        members: (alias, label, relation) in FROM order.
        retention: ``[i][j]``: microseconds behind member j's watermark for which member i's tuples
            must stay stored (the closed matrix of time bounds); None: for ever.
        sink: destination of the results.
        view: the query's post-join part; its changes go to the sink instead of the joined rows.
        outer: the outer join of its results with the results of the query ``left_of``.
        united: whether it is a branch of a union; its results are written as results of the query
            :attr:`registered`.
        freshness: (label, maximum age of its tuple when a result is emitted), in microseconds of
            event time; labels without a limit are absent.
        past: whether results over visible tuples from before its activation are emitted as well.
        looked_up: labels whose tuples complete no result.
        expansions: expansions of joined rows, whose columns the projection may read.
    """

    id: QueryId
    members: tuple[tuple[str, Label, RelationId], ...]
    retention: tuple[tuple[int | None, ...], ...]
    projection: tuple[Output, ...]
    sink: SinkSpec = field(default_factory=SinkSpec)
    view: View | None = None
    outer: OuterJoin | None = None
    left_of: QueryId | None = None
    freshness: tuple[tuple[Label, int], ...] = ()
    past: bool = False
    united: bool = False
    looked_up: tuple[Label, ...] = ()
    expansions: tuple[Expansion, ...] = ()

    @property
    def registered(self) -> QueryId:
        """Id of the registered query to which this join or branch belongs; else its own id."""
        return QueryId(registered(self.id))

    @property
    def completing(self) -> tuple[int, ...]:
        """Indexes of the aliases whose tuples can complete a result."""
        return tuple(i for i, (_, lab, _) in enumerate(self.members) if lab not in self.looked_up)

    @property
    def has_post_join(self) -> bool:
        """Whether the sink receives rows of a view or an outer join instead of the joined rows."""
        return self.view is not None or self.has_outer_join

    @property
    def has_outer_join(self) -> bool:
        """Whether the query's results, or its view, depend on left rows without a match."""
        return self.outer is not None or self.left_of is not None


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The rules and stores with which epoch ``epoch`` runs.

    Attributes:
        derived: join key expressions that are not plain columns: (stream, text, expression).
        sketches: per relation, the attribute combinations whose distinct values are counted.
        backfill_rules: at most one per MIR store.
        latest_rules: one per stream that queries read and that keeps the latest tuple per key.
        substreams: splits of arriving tuples, at most one per label.
        revision: 0 for the ruleset with which the epoch begins, then 1, 2, ...
    """

    epoch: int
    streams: tuple[Stream, ...]
    relations: tuple[Relation, ...]
    queries: tuple[QuerySpec, ...]
    stores: tuple[StoreSpec, ...]
    store_rules: tuple[StoreRule, ...]
    probe_rules: tuple[ProbeRule, ...]
    output_rules: tuple[OutputRule, ...]
    derived: tuple[tuple[StreamName, str, Expr], ...] = ()
    sketches: tuple[tuple[RelationId, tuple[tuple[str, str], ...]], ...] = ()
    backfill_rules: tuple[BackfillRule, ...] = ()
    latest_rules: tuple[LatestRule, ...] = ()
    substreams: tuple[Substreams, ...] = ()
    revision: int = 0
    version: int = VERSION

    @property
    def id(self) -> RulesetId:
        """Identifier of the ruleset: its epoch and revision."""
        return RulesetId(self.epoch, self.revision)

    @property
    def levels(self) -> int:
        """Number of probe stages in a batch (0 without probes)."""
        return 1 + max((p.level for p in self.probe_rules), default=-1)

    @property
    def paths(self) -> tuple[ProbeRule, ...]:
        """The probe rules in depth-first order: each after the rule whose matches it receives."""
        after: dict[Edge, list[ProbeRule]] = defaultdict(list)
        for rule in self.probe_rules:
            after[rule.edge].append(rule)
        found: list[ProbeRule] = []
        arrivals = sorted(arrival_edge(r.id) for r in self.relations)
        pending = [rule for edge in arrivals for rule in after[edge]]
        while pending:
            rule = pending.pop()
            found.append(rule)
            pending += after[rule.out]
        return tuple(found)

    @property
    def takers(self) -> dict[Edge, tuple[int, ...]]:
        """Outgoing edge of each probe -> the substreams whose tuples reach it; empty: all."""
        found: dict[Edge, tuple[int, ...]] = {}
        for rule in self.paths:
            found[rule.out] = found.get(rule.edge) or rule.substreams
        return found

    def validate(self) -> None:
        """Check that rules refer to known stores, relations, queries and edges.

        Raises:
            RulesetError: naming the first violation.
        """
        stores = {s.id for s in self.stores}
        relations = {r.id for r in self.relations}
        queries = {q.id for q in self.queries}
        edges = {arrival_edge(r) for r in relations} | {p.out for p in self.probe_rules}
        outs = [p.out for p in self.probe_rules]
        _require(len(outs) == len(set(outs)), "an edge label is used twice")
        for store in self.stores:
            _require(set(store.relations) <= relations, "no relation of store", store.id)
            if store.hot:
                _require(_are_hot(store), "values can't be hot in store", store.id)
        for rule in self.store_rules:
            _require(rule.store in stores and rule.edge in edges, "dangling", rule)
        for probe in self.probe_rules:
            _require(probe.store in stores and probe.edge in edges, "dangling", probe)
            _require(bool(probe.key), "cross product on edge", probe.out)
        counts = substream_counts(self.substreams)
        _require(len(counts) == len(self.substreams), "a label is split into substreams twice")
        for probe in self.probe_rules:
            for number in probe.substreams:
                known = 0 <= number < counts.get(probe.start, 0)
                _require(known and probe.edge not in outs, "no such substream", probe)
        if any(probe.ahead for probe in self.probe_rules):
            self._validate_ahead(stores)
        for output in self.output_rules:
            _require(output.query in queries and output.edge in edges, "dangling", output)
        for latest in self.latest_rules:
            there = next((s for s in self.stores if s.id == latest.store), None)
            _require(there is not None and latest.relation in relations, "dangling", latest)
            _require(there is None or latest.index in there.indexes, "no index for", latest)
        for backfill in self.backfill_rules:
            _require(backfill.store in stores, "dangling", backfill)
            _require(
                all(
                    s.key and s.store in stores and s.relation in relations for s in backfill.steps
                ),
                "dangling",
                backfill,
            )

    def _validate_ahead(self, stores: set[StoreId]) -> None:
        known: dict[Edge, frozenset[Label]] = {}
        for probe in self.paths:
            before = known.get(probe.edge, frozenset([probe.start]))
            known[probe.out] = before.union(probe.members)
            for asked in probe.ahead:
                _require(asked.store in stores and bool(asked.key), "dangling", probe)
                _require(all(k.probe.label in before for k in asked.key), "not known yet", probe)


def substream_counts(functions: Iterable[Substreams]) -> dict[Label, int]:
    """Map each label whose arriving tuples are split by a ruleset to its number of substreams."""
    return {one.start: one.count for one in functions}


def used_substreams(
    functions: Iterable[Substreams], probes: Iterable[ProbeRule]
) -> tuple[Substreams, ...]:
    """Return the ``functions`` of a ruleset whose substreams take different ``probes``, sorted."""
    divided = {rule.start for rule in probes if rule.substreams}
    return tuple(sorted({one for one in functions if one.start in divided}))


def arrival_edge(relation: RelationId) -> Edge:
    """Return the edge over which tuples of ``relation`` arrive."""
    return Edge(f"in:{relation}")


def _are_hot(store: StoreSpec) -> bool:
    """Whether a store's hot values are valid: sorted, distinct hashes of its partition key."""
    hashes = [one.hash for one in store.hot]
    return (
        store.partition is not None
        and sorted(set(hashes)) == hashes
        and all(one.hosts > 1 and 0 <= one.hash < 1 << 64 for one in store.hot)
    )


def _require(condition: bool, message: str, row: object = "") -> None:
    """Raise an error about a ruleset that names ``row`` unless ``condition`` holds."""
    if not condition:
        raise RulesetError("bad-ruleset", f"{message} {row}".rstrip())


#: Pattern whose first match in a ruleset's text is its epoch: no earlier field is named ``epoch``,
#: and quotes within strings are escaped.
_EPOCH = re.compile(r'"epoch":\d+')

#: Kind of rule -> the field of :class:`Ruleset` with these rules.
RULES = {kind: f"{kind}_rules" for kind in ("store", "probe", "output", "backfill", "latest")}


def dumps(ruleset: Ruleset) -> str:
    """Return the JSON text of a ruleset; equal rulesets have equal texts."""
    return codec.dumps(_wire(ruleset))


def digest(text: str) -> str:
    """Return a short digest of a ruleset's text, for comparison."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def renumbered(text: str, epoch: int) -> str:
    """Return the text of the same ruleset for another epoch.

    >>> renumbered('{"derived":[],"epoch":3,"revision":0}', 12)
    '{"derived":[],"epoch":12,"revision":0}'
    """
    named, wanted = _EPOCH.search(text), f'"epoch":{epoch}'
    if named is None or named.group() == wanted:
        return text
    return text[: named.start()] + wanted + text[named.end() :]


def loads(text: str | bytes) -> Ruleset:
    """Decode a ruleset's text; raises as :func:`from_json` does."""
    try:
        return from_json(codec.loads(text, dict[str, Any]))
    except codec.Malformed as cause:
        raise RulesetError("bad-ruleset", f"malformed ruleset: {cause}") from cause


def to_json(ruleset: Ruleset) -> dict[str, Any]:
    """Return the ruleset's wire document as dicts, lists and scalars."""
    return cast("dict[str, Any]", codec.to_json(_wire(ruleset)))


def from_json(doc: dict[str, Any]) -> Ruleset:
    """Return the ruleset of a document that :func:`to_json` has written.

    Raises:
        RulesetError: an unknown version, or a malformed document.
    """
    written = doc.get("version")
    if written != VERSION:
        raise RulesetError(
            "unknown-version",
            f"ruleset version {written!r} is not supported",
            remedy=f"the runtime reads version {VERSION}: run service and runtime of one release",
        )
    try:
        rules = {RULES[kind]: rules for kind, rules in doc["rules"].items() if kind in RULES}
        return codec.from_json({**doc, **rules}, Ruleset)
    except (KeyError, TypeError, AttributeError, codec.Malformed) as cause:
        raise RulesetError("bad-ruleset", f"malformed ruleset: {cause!r}") from cause


def _wire(ruleset: Ruleset) -> dict[str, Any]:
    doc = codec.fields(ruleset)
    doc["rules"] = {kind: doc.pop(name) for kind, name in RULES.items()}
    return doc
