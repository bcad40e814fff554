"""Traffic between hosts as part of a plan's cost: the number of tuples sent, and the bytes of each.

On ``H`` hosts the partitions of all stores are assigned by hash. The assignment is the same for
every store, so equal keys are on one host. A tuple arrives on each host with equal probability, or
with measured probabilities. After a probe it is on the host of the matching row's partition. The
next step then sends this number of copies of it to other hosts:

    0          if the step is routed by the key that brought the tuple to its host;
    (H-1) / H  if it is routed by another key, whose partition may be on the same host;
    H - 1      if the tuple has no routing key: one to every other host.

**Prices** (:class:`Crossing`) depend only on the sub-joins before and after a step, like the whole
cost model. The tuple's true host depends on the store copies that its path has probed. A tuple is
assumed to stay on its host if all joins so far and the next step use a single key, else to be on a
random host. So a step is overcharged if the step before was a broadcast to rows partitioned by the
next key, or if the next key is one of several earlier keys.

**Bytes.** A tuple carries the columns that its queries project, filter on, or join by later, and
eight bytes for its arrival number. Sizes are Arrow's: a text has its bytes and a 4-byte offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch_contract.errors import StatisticsError
from anabranch_contract.queries.joins import Label, RelationId
from anabranch_contract.queries.mirs import Mir
from anabranch_planner.cost.columns import read_by_query
from anabranch_planner.cost.timing import Users

#: Bytes assumed for a column of unknown width; bytes of a tuple's arrival number.
DEFAULT_COLUMN = ARRIVAL = 8.0
#: Bytes assumed for a relation's tuple if its columns are unknown.
DEFAULT_ROW = 100.0


@dataclass(frozen=True, slots=True)
class ExchangeModel:
    """The hosts of a cluster, and the sizes of the tuples that travel between them.

    Attributes:
        hosts: number of hosts that have partitions.
        widths: relation -> column -> mean bytes of a value.
        locality: fraction of the arriving bytes that already are on the host of their partition;
            None: ``1 / hosts``, as if tuples arrived on random hosts.

    Raises:
        StatisticsError: there is no host, a width is not a finite number from 0, or a share is
            not in [0, 1].
    """

    hosts: int
    widths: Mapping[RelationId, Mapping[str, float]] = field(default_factory=dict)
    locality: float | None = None

    def __post_init__(self) -> None:
        if self.hosts < 1:
            raise StatisticsError(
                "bad-hosts",
                f"there are {self.hosts} hosts",
                field="hosts",
                remedy="use at least one host",
            )
        if self.locality is not None and not 0 <= self.locality <= 1:
            raise StatisticsError(
                "bad-share",
                f"{self.locality} of all tuples arrive on the host of their partition",
                field="locality",
                remedy="give a share from 0 to 1, or leave it out",
            )
        for relation, widths in self.widths.items():
            for column, width in widths.items():
                if not 0 <= width < float("inf"):
                    raise StatisticsError(
                        "bad-width",
                        f"values of {relation}.{column} have {width} bytes",
                        field="widths",
                        remedy="give finite numbers from 0, or leave out what is unknown",
                    )

    @property
    def elsewhere(self) -> float:
        """Probability that a tuple and the partition of an unrelated key are on different hosts."""
        return (self.hosts - 1) / self.hosts

    @property
    def arriving(self) -> float:
        """Fraction of arriving tuples that have to be sent to another host."""
        return self.elsewhere if self.locality is None else 1 - self.locality

    def column(self, relation: RelationId, name: str) -> float:
        """Mean bytes of a value of a relation's column, measured or assumed."""
        return self.widths.get(relation, {}).get(name, DEFAULT_COLUMN)

    def row(self, relation: RelationId) -> float:
        """Bytes of a stored row of ``relation``: all of its columns."""
        known = self.widths.get(relation)
        return ARRIVAL + (DEFAULT_ROW if known is None else sum(known.values()))


class Crossing:
    """Bytes that probe steps and inserts send between hosts.

    Args:
        users: the queries that contain each sub-join and read its columns; None: all are sent.
    """

    def __init__(self, exchange: ExchangeModel, users: Users | None) -> None:
        self._exchange, self._users = exchange, users
        self._widths: dict[tuple[str, Label | None], float] = {}

    def step(
        self, before: Mir, after: Mir, start: Label | None, *, broadcast: bool, partitioned: bool
    ) -> float:
        """Bytes sent to other hosts for one tuple over ``before`` in the step to ``after``."""
        copies = self._copies(before, after, broadcast=broadcast, partitioned=partitioned)
        return copies * self._width(before, start) if copies else 0.0

    def insert(self, mir: Mir) -> float:
        """Bytes sent to bring one new row to the host of its partition in one copy of ``mir``."""
        if mir.is_base:
            return self._exchange.arriving * self._exchange.row(mir.relations[0])
        # A row also has an arrival number for each of its members.
        arrivals = ARRIVAL * (len(mir.members) - 1)
        return self._exchange.elsewhere * (arrivals + self._width(mir, None))

    def _copies(self, before: Mir, after: Mir, *, broadcast: bool, partitioned: bool) -> float:
        """Number of copies of a tuple that a step sends to other hosts."""
        if not partitioned:
            # The stores of an unpartitioned plan are all on one host.
            return self._exchange.elsewhere if before.is_base else 0.0
        if broadcast:
            return self._exchange.hosts - 1
        if before.is_base:
            return self._exchange.arriving
        return 0.0 if _stays(before, after) else self._exchange.elsewhere

    def _width(self, mir: Mir, start: Label | None) -> float:
        """Mean bytes of a tuple over the sub-join ``mir`` that is sent between hosts; cached."""
        key = mir.id, start if mir.is_base else None
        found = self._widths.get(key)
        if found is None:
            found = self._widths[key] = self._measure(mir, start)
        return found

    def _measure(self, mir: Mir, start: Label | None) -> float:
        """Mean bytes of the columns of a tuple over ``mir`` that its queries still need."""
        if mir.is_base and start is not None:
            # In a self-join only ``start`` identifies the tuple's alias.
            mir = replace(mir, members=(start,))
        users = [] if self._users is None else self._users.of(mir)
        if not users:
            return sum(self._exchange.row(relation) for relation in mir.relations)
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        read = set()
        for query in users:
            stream_of = {relation.id: relation.stream for relation in query.relations}
            derived = {(stream, name): made for stream, name, made in query.derived}
            read |= read_by_query(query, mir, stream_of, derived)
        return ARRIVAL + sum(self._exchange.column(relation_of[label], c) for label, c in read)


def _stays(before: Mir, after: Mir) -> bool:
    """Whether a step routed by key probes the host on which the partial result already is."""
    head = frozenset(before.members)
    inside, links = [], []
    for key_class in after.classes:
        labels = {member.label for member in key_class.members}
        if len(labels & head) > 1:
            inside.append(key_class)
        if labels & head and labels - head:
            links.append(key_class)
    return len(inside) == 1 and links == inside
