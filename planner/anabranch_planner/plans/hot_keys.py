"""Hot values: key values whose new rows are spread over several hosts, and the number of hosts.

On ``H`` hosts the rows, probes and matches of a value are on the host of its partition, which bears
the whole load of the value. If its new rows are spread over ``W`` hosts, each of them stores and
matches a fraction of its rows, and every probe of the value goes to all of them.

**The busiest host.** Let ``L`` be the load of all hosts together, and ``e_p`` the load of the
frequent values whose partition is ``p``. The runtime assigns partitions to hosts. If it ignores the
``e_p``, the expected load of the busiest host is

    L / H  +  (1 - 1/H) * sqrt(sum of e_p ** 2)

This is exact for a single such partition (its host bears ``e_p`` and its share of the rest), and at
most the load of a host with all of them. The runtime weighs partitions, so it may do better as long
as no partition exceeds a host's share. A value spread over all hosts is in no ``e_p``; a value
spread over ``W < H`` hosts adds a fraction of its load to each of these.

**The choice.** Greedy over stores and values: the next hot value is the one whose relief of the
busiest host exceeds its price by most. The price consists of the additional probes on all hosts,
and of the bytes of these probes and their matches; it is part of the load as well. The choice ends
when no value relieves the busiest host by more than its price and by at least :data:`WORTH` times
the hosts' mean load, or when :data:`MOST` values are hot.

**Hysteresis.** Measured shares of frequent values are never too high (``FrequentValues``), so their
errors make no value hot. A hot value stays hot until its relief is below half of these thresholds;
hysteresis does not change the order of the choice.

Simplifications: values of different keys are taken to be independent, and stored rows stay in place
until they expire. The store of a stream that keeps the latest tuple per key is not spread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.needs import Needs
from anabranch_contract.plans.routes import Routes
from anabranch_contract.plans.ruleset import (
    Edge,
    HotValue,
    ProbeRule,
    Ruleset,
    StoreId,
    StoreSpec,
    home_partition,
)
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label, RelationId
from anabranch_contract.queries.mirs import Mir, base_mir
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.steps import SubJoins
from anabranch_planner.cost.values import joined_columns
from anabranch_planner.plans.traffic import are_equal, known_attribute, users_of, width_of

Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]


#: Maximum number of hot values of all stores together.
MOST = 128
#: Minimum reduction of the busiest host's load by a hot value, relative to the hosts' mean load.
WORTH = 0.01
#: A hot value stays hot until its benefit is below this fraction of the thresholds.
STAYS = 0.5


class Hot(NamedTuple):
    """A hot value of one store: its new rows are spread over several hosts.

    Attributes:
        store, attribute: the store, and its partition attribute.
        value: hash of the value, and the number of hosts over which its rows are spread.
        text: the value as text for people; "" if unknown.
        load: fraction of all hosts' load that the value's rows, probes and matches cause.
        spared: reduction of the busiest host's load, in seconds per unit of time.
        price: additional load of all hosts, in seconds per unit of time.
    """

    store: StoreId
    attribute: AttrRef
    value: HotValue
    text: str
    load: float
    spared: float
    price: float


@dataclass(frozen=True, slots=True)
class HotKeys:
    """The hot values of a ruleset, and their effect on the busiest host.

    Attributes:
        hosts: number of hosts.
        values: the hot values, by store and hash.
        before, after: expected load of the busiest host relative to the mean, without and with
            these hot values.
    """

    hosts: int
    values: tuple[Hot, ...] = ()
    before: float = 1.0
    after: float = 1.0

    def of(self, store: StoreId) -> tuple[HotValue, ...]:
        """The hot values of one store, sorted by hash."""
        return tuple(sorted(one.value for one in self.values if one.store == store))


def deal_hot(ruleset: Ruleset, found: HotKeys) -> Ruleset:
    """Copy of ``ruleset`` whose stores spread the rows of the hot values ``found``."""
    stores = tuple(replace(store, hot=found.of(store.id)) for store in ruleset.stores)
    made = replace(ruleset, stores=stores)
    made.validate()
    return made


def hot_document(found: HotKeys) -> dict[str, Any]:
    """Hot values and the expected load of the busiest host as JSON, by descending load."""
    return {
        "hosts": found.hosts,
        "before": found.before,
        "after": found.after,
        "values": [
            {
                "store": str(one.store),
                "attribute": str(one.attribute),
                "value": one.text,
                # A text, because many JSON readers do not keep all 64 bits of a number.
                "hash": str(one.value.hash),
                "hosts": one.value.hosts,
                "load": one.load,
                "spared": one.spared,
                "price": one.price,
            }
            for one in sorted(found.values, key=lambda one: (-one.load, one))
        ],
    }


def hot_keys(
    ruleset: Ruleset,
    queries: Sequence[JoinQuery],
    model: CostModel,
    exchange: ExchangeModel | None,
    constants: CostConstants | None = None,
    earlier: Mapping[str, Sequence[HotValue]] | None = None,
) -> HotKeys:
    """Choose the values whose new rows are worth spreading over several hosts.

    Args:
        queries: the queries of ``ruleset``.
        model: estimates probing tuples and their matches.
        exchange: the hosts, and the widths of columns; None: a single host.
        constants: prices in seconds; None: the defaults.
        earlier: store -> the currently hot values.
    """
    if exchange is None or exchange.hosts < 2 or model.on_one_host:
        return HotKeys(1 if exchange is None else exchange.hosts)
    loads = _Loads(ruleset, queries, model, exchange, constants or CostConstants())
    return _HotValueChooser(loads, exchange.hosts, earlier or {}).chosen()


@dataclass(slots=True)
class _Store:
    """Loads of the frequent values of one store; each array has an entry per value.

    Attributes:
        parts: seconds for a value's rows and matches, which spreading divides among the hosts.
        probes: seconds for a value's probes, which each of the hosts repeats.
        crossing: seconds for sending one more copy of its probes to another host.
        behind: seconds for sending a value's matches from the other hosts to the next step.
    """

    spec: StoreSpec
    hashes: Hashes
    parts: Floats = field(init=False)
    probes: Floats = field(init=False)
    crossing: Floats = field(init=False)
    behind: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.parts, self.probes, self.crossing, self.behind = np.zeros((4, len(self.hashes)))


class _Loads:
    """CPU load in seconds per unit of time of rows, probes and matches, by store and key value."""

    def __init__(
        self,
        ruleset: Ruleset,
        queries: Sequence[JoinQuery],
        model: CostModel,
        exchange: ExchangeModel,
        constants: CostConstants,
    ) -> None:
        self.routes, self.subs = Routes(ruleset), SubJoins(queries)
        self.model, self.exchange, self.constants = model, exchange, constants
        self.paths, self.takers = ruleset.paths, ruleset.takers
        self.users = users_of(self.paths, self.routes, self.subs)
        self.needs = Needs(self.routes)
        #: CPU seconds of all stores together.
        self.total = 0.0
        self.heads: dict[Edge, frozenset[Label]] = {}
        for rule in self.paths:
            self.heads[rule.out] = self.head(rule).union(rule.members)
        asked: dict[StoreId, list[ProbeRule]] = defaultdict(list)
        for rule in self.paths:
            asked[rule.store].append(rule)
        self.stores = [self._store(spec, asked[spec.id]) for spec in ruleset.stores]

    def head(self, rule: ProbeRule) -> frozenset[Label]:
        """The aliases joined before the probe of ``rule``."""
        return self.heads.get(rule.edge, frozenset({rule.start}))

    def texts(self, store: _Store) -> dict[int, str]:
        """Hash -> text of each frequent value of a store's partition key."""
        return self.model.values.texts(self._columns(store.spec))

    def _store(self, spec: StoreSpec, asked: Sequence[ProbeRule]) -> _Store:
        known = self._columns(spec)
        keys = [(rule, known_attribute(rule, spec)) for rule in asked]
        for rule, probe in keys:
            if known and probe is not None:
                known += joined_columns(self._before(rule), probe)
        found = _Store(spec, self.model.values.frequent(known))
        self._add_rows(found)
        for rule, probe in keys:
            self._add_probes(found, rule, probe)
        return found

    def _columns(self, spec: StoreSpec) -> list[tuple[RelationId, str]]:
        """The store's partition column and its equal columns; empty if rows may not be spread."""
        streams = {self.routes.relations[r].stream for r in spec.relations}
        latest = not streams.isdisjoint(self.routes.latest)
        if spec.partition is None or spec.partitions == 1 or latest:
            return []
        mir = self._mir(spec)
        return [] if mir is None else joined_columns(mir, spec.partition[0])

    def _mir(self, spec: StoreSpec) -> Mir | None:
        """The sub-join whose rows a store has; None if no query contains it."""
        if len(spec.members) == 1:
            return base_mir(spec.relations[0])
        query = self.subs.containing(frozenset(spec.members), spec.mir)
        return None if query is None else self.subs.of(query, frozenset(spec.members))

    def _add_rows(self, store: _Store) -> None:
        """Add the load of inserting the store's rows, by frequent value."""
        spec = store.spec
        mir = self._mir(spec)
        if mir is None:
            return
        rows = self.model.added(mir) * self.constants.row
        self.total += rows
        if len(store.hashes) and spec.partition is not None:
            shares = self.model.values.shares
            start = mir.members[0] if mir.is_base else None
            store.parts += rows * shares(mir, spec.partition[0], start, store.hashes)

    def _add_probes(self, store: _Store, rule: ProbeRule, probe: AttrRef | None) -> None:
        """Add the load of probes by ``rule`` and of their matches, by frequent value."""
        spec, constants = store.spec, self.constants
        before, after = self._before(rule), self.subs.of(self.users[rule.out], self.heads[rule.out])
        takers = self.takers[rule.out]
        sent = self.model.probe_of(before, rule.start, takers)
        made = self.model.probe_of(after, rule.start, takers)
        look = constants.step(1.0, 0.0, rule.mir, 1) - constants.call * constants.calls
        chi = 1 if probe is not None or spec.partition is None else self.exchange.hosts
        self.total += sent * look * chi + made * constants.match
        if not len(store.hashes) or spec.partition is None:
            return
        rename = dict(zip(spec.members, rule.members, strict=True))
        attribute = spec.partition[0]
        found = AttrRef(rename[attribute.label], attribute.attribute)
        matches = self.model.probe_with(after, rule.start, takers, found, store.hashes)
        store.parts += matches * constants.match
        store.behind += matches * self._next(rule, found) * constants.byte
        if probe is not None:
            probes = self.model.probe_with(before, rule.start, takers, probe, store.hashes)
            store.probes += probes * look
            store.crossing += probes * self._width(rule) * constants.byte

    def _next(self, rule: ProbeRule, found: AttrRef) -> float:
        """Bytes per match of ``rule`` that the next steps send only if the value is spread."""
        query = self.users[rule.out]
        return sum(
            self._width(step)
            for step in self.routes.probes.get(rule.out, ())
            for known in [known_attribute(step, self.routes.specs[step.store])]
            if known is not None and are_equal(query, found, known)
        )

    def _width(self, rule: ProbeRule) -> float:
        needed = self.needs.probe(rule)
        return width_of(self.routes, needed, rule.start, self.head(rule), self.exchange)

    def _before(self, rule: ProbeRule) -> Mir:
        return self.subs.of(self.users[rule.out], self.head(rule))


class _HotValueChooser:
    """Greedy choice of hot values to spread over hosts, one value at a time."""

    def __init__(
        self, loads: _Loads, hosts: int, earlier: Mapping[str, Sequence[HotValue]]
    ) -> None:
        self.loads, self.hosts = loads, hosts
        stores = [store for store in loads.stores if len(store.hashes)]
        self.stores = stores
        pairs = [(s, v) for s, one in enumerate(stores) for v in range(len(one.hashes))]
        self.pairs = np.array(pairs, np.int64).reshape(-1, 2)

        def joined(name: str) -> Floats:
            return np.concatenate([np.zeros(0), *(getattr(store, name) for store in stores)])

        self.parts, self.probes = joined("parts"), joined("probes")
        self.crossing, self.behind = joined("crossing"), joined("behind")
        places: dict[tuple[int, int], int] = {}
        homes, stays, most = [], [], []
        for store in stores:
            count = store.spec.partitions
            now = {one.hash for one in earlier.get(store.spec.id, ())}
            for value in store.hashes.tolist():
                homes.append(places.setdefault((count, home_partition(value, count)), len(places)))
                stays.append(value in now)
                most.append(count)
        self.homes = np.array(homes, np.int64)
        self.needed = np.where(stays, STAYS, 1.0)
        #: Per (store, value) pair: maximum number of hosts, which is the number of partitions.
        self.most = np.array(most, np.int64)
        #: Per partition: the load of its frequent values that are not spread.
        self.excess = np.zeros(len(places))
        np.add.at(self.excess, self.homes, self.parts + self.probes)
        #: Contributions of the spread values to the sum of squares and to the total load.
        self.squares, self.more = 0.0, 0.0

    def chosen(self) -> HotKeys:
        """Choose hot values until no further one reduces the busiest host's load enough."""
        before, found = self._busiest(), dict[int, tuple[int, float, float]]()
        options = sorted({self.hosts, *(2**n for n in range(1, self.hosts.bit_length()))})
        options = [ways for ways in options if ways <= self.hosts]
        while len(found) < min(MOST, len(self.pairs)):
            best = max((self._best(ways, found) for ways in options), key=lambda one: one[0])
            gain, pair, ways, spared, price = best
            if gain == -np.inf:
                break
            self._take(pair, ways)
            found[pair] = ways, spared, price
        mean = self.loads.total / self.hosts
        if not found or mean <= 0.0:
            return HotKeys(self.hosts, (), *self._over_mean(before, before, mean))
        values = tuple(sorted(self._hot(pair, *one) for pair, one in found.items()))
        return HotKeys(self.hosts, values, *self._over_mean(before, self._busiest(), mean))

    def _over_mean(self, before: float, after: float, mean: float) -> tuple[float, float]:
        if mean <= 0.0:
            return 1.0, 1.0
        rest = (self.loads.total + self.more) / self.hosts
        most = float(self.hosts)
        return min(before / mean, most), min(after / rest, most)

    def _busiest(self) -> float:
        """Expected load of the busiest host, in seconds, with the hot values chosen so far."""
        squares = float((self.excess**2).sum()) + self.squares
        apart: float = (1 - 1 / self.hosts) * squares**0.5
        return (self.loads.total + self.more) / self.hosts + apart

    def _best(self, ways: int, taken: Iterable[int]) -> tuple[float, int, int, float, float]:
        """The best next value to spread over ``ways`` hosts: its gain, the index of its (store,
        value) pair, ``ways``, reduction of the busiest host's load, and price."""
        own = self.parts + self.probes
        price = self._price(ways)
        left = 0.0 * own if ways == self.hosts else self.parts / ways + self.probes
        home = self.excess[self.homes]
        squares = float((self.excess**2).sum()) + self.squares
        after = squares - home**2 + (home - own + left) ** 2 + (ways - 1) * left**2
        rest = (self.loads.total + self.more + price) / self.hosts
        busiest = rest + (1 - 1 / self.hosts) * np.sqrt(np.maximum(after, 0.0))
        spared = self._busiest() - busiest
        mean = self.loads.total / self.hosts
        threshold = np.maximum(price, WORTH * mean)
        # Rank without hysteresis: lower thresholds then add values, but change no earlier choice.
        gain = np.where(spared > self.needed * threshold, spared - threshold, -np.inf)
        gain[list(taken)] = -np.inf
        gain[self.most < ways] = -np.inf
        # argmax takes the first of several equal gains.
        pair = int(gain.argmax())
        return float(gain[pair]), pair, ways, float(spared[pair]), float(price[pair])

    def _price(self, ways: int) -> Floats:
        """Price per hot value: additional seconds of all hosts if spread over ``ways`` hosts."""
        found: Floats = (ways - 1) * (self.probes + self.crossing) + (1 - 1 / ways) * self.behind
        return found

    def _take(self, pair: int, ways: int) -> None:
        """Choose a hot value: update the load of hosts for ``pair`` spread over ``ways`` hosts."""
        self.more += float(self._price(ways)[pair])
        home = self.homes[pair]
        left = 0.0 if ways == self.hosts else float(self.parts[pair] / ways + self.probes[pair])
        self.excess[home] += left - float(self.parts[pair] + self.probes[pair])
        self.squares += (ways - 1) * left**2

    def _hot(self, pair: int, ways: int, spared: float, price: float) -> Hot:
        at, number = self.pairs[pair].tolist()
        store = self.stores[at]
        value = int(store.hashes[number])
        assert store.spec.partition is not None
        load = float(self.parts[pair] + self.probes[pair]) / self.loads.total
        text = self.loads.texts(store).get(value, "")
        return Hot(
            store.spec.id, store.spec.partition[0], HotValue(value, ways), text, load, spared, price
        )
