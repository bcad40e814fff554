"""Routes partial results to the stores of their next probes, on any host.

A *work* is a source of tuples for probe trees: the batch's own arrivals, a catch-up, a backfill.
Each work has its own access per edge and its own receiver of results. If all tasks are on one host,
a probe is a function call. Otherwise it is a *hop*: tuples that may match rows of other hosts are
sent to these hosts, the others probe at once, and received tuples are treated as tuples of this
host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.needs import Needed, Needs
from anabranch_contract.plans.ruleset import KeyPart, ProbeRule, Ruleset
from anabranch_contract.queries.joins import Label
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.exchange.routing import destinations, pack, unpack
from anabranch_runtime.exchange.traffic import Letter, Traffic
from anabranch_runtime.probe.pieces import Pieces
from anabranch_runtime.probe.rounds import Rounds
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.tags.tags import Tags
from anabranch_runtime.task.context import BatchContext

#: First part of a hop's address; edge, work and index of the fill step (-1: none) follow.
HOP = "hop"
#: Assumed bytes of a value in a message, as long as none has been measured.
COLUMN = 8.0


@dataclass(frozen=True, slots=True)
class ProbeWork:
    """Probes of one origin: of the batch's arrivals, of a catch-up, or of a backfill.

    Attributes:
        name: name of the work, the same in all tasks.
        pieces: runs the probes.
        access: rule -> tiles and gaps of its probe.
        rules: probe rules by outgoing edge.
        guard: passes on the results of probes until an expression fails.
        done: receives the results of a probe.
        rounds: runs the batch's own probes together (``probe.rounds``); None for other origins.
    """

    name: str
    pieces: Pieces
    access: Callable[[ProbeRule], Access]
    rules: Mapping[str, ProbeRule]
    guard: Callable[[ProbeRule, Iterator[Partial]], Iterator[Partial]]
    done: Callable[[Partial, ProbeRule], None]
    rounds: Rounds | None = None

    @property
    def is_batch(self) -> bool:
        """Whether the probes start with the batch's arrivals."""
        return self.rounds is not None


@dataclass(frozen=True, slots=True)
class ProbeRouter:
    """Runs the probes of one task, on this host or on others.

    Attributes:
        traffic: messages to other hosts; None on a single host. ``needs``: columns to send.
        tags: select the tuples to send to a probe.
    """

    layout: Layout
    traffic: Traffic | None
    needs: Needs
    tags: Tags

    def probe(self, work: ProbeWork, partial: Partial, rule: ProbeRule) -> None:
        """Probe with ``partial`` by ``rule``, on this host and on others."""
        if self.traffic is None:
            self._probe(work, partial, rule, partial.length)
            return
        partial = self.tags.passing(partial, rule)
        if not partial.length:
            return
        access = work.access(rule)
        if access.tiles:
            self._hop(work, partial, rule, -1)
        if access.gaps:
            if not access.tiles:
                meter = work.pieces.prober.meters[rule.out]
                meter.probes += partial.length
                meter.calls += 1
            self._hop(work, partial, rule, 0)

    def arrived(self, work: ProbeWork, edge: str, at: int, letter: Letter) -> None:
        """Continue a probe with tuples from another host; ``at``: fill step, as in :meth:`_hop`."""
        self._here(work, unpack(letter.rows), work.rules[edge], at, letter.of)

    def _hop(self, work: ProbeWork, partial: Partial, rule: ProbeRule, at: int) -> None:
        """Probe by ``rule`` (``at`` is -1), or by its ``at``-th fill step in the gaps of an MIR."""
        for staying in work.guard(rule, self._split(work, partial, rule, at)):
            self._here(work, staying, rule, at, partial.length)

    def _split(
        self, work: ProbeWork, partial: Partial, rule: ProbeRule, at: int
    ) -> Iterator[Partial]:
        """Send tuples to the hosts of their matches; yield the tuples to probe on this host."""
        traffic, access = self.traffic, work.access(rule)
        assert traffic is not None
        key: Sequence[KeyPart] = rule.key if at < 0 else rule.fill[at].key
        tiles: Sequence[Tile] = access.tiles if at < 0 else access.fill[at]
        fleet = traffic.fleet
        # Demand counts only starting tuples, as the placement determines where others are.
        given = work.is_batch and len(partial.place) == 1
        wanted: list[NDArray[np.int64]] = []
        count = wanted.append if given else None
        found = list(destinations(self.layout, fleet, partial, key, tiles, count))
        meter = work.pieces.prober.meters[rule.out]
        if at < 0:
            # Each tuple counts once, on the host that probes with it.
            meter.probes += partial.length - sum(len(positions) for _, positions in found)
        needed = self.needs.probe(rule) if at < 0 else self.needs.fill(rule, at)
        width = 0.0
        for host, positions in found:
            part = partial if len(positions) == partial.length else partial.take(positions)
            if host == fleet.here:
                yield part
                continue
            rows = pack(self.layout, part, needed)
            meter.sent += rows.num_rows
            meter.sent_bytes += rows.nbytes
            width = rows.nbytes / rows.num_rows
            address = (HOP, rule.out, work.name, str(at))
            traffic.send(fleet.peer(host), Letter(address, rows, partial.length))
        for tuples in wanted:
            traffic.add_demand(tuples, width or self._width(partial, needed))

    def _width(self, partial: Partial, needed: Needed) -> float:
        """Estimate the bytes per tuple of ``partial`` in a message."""
        columns = needed.columns_of(partial.start, self.layout.stream)
        return COLUMN * (1 + sum(label in partial.place for label, _ in columns))

    def _here(self, work: ProbeWork, partial: Partial, rule: ProbeRule, at: int, of: int) -> None:
        """Probe on this host with ``partial``, a part of the ``of`` tuples of a probe."""
        if at < 0:
            self._probe(work, partial, rule, of)
            return
        access = work.access(rule)
        last = at + 1 == len(rule.fill)
        for made in work.guard(rule, work.pieces.fill(partial, rule, access, at)):
            if last:
                work.done(made, rule)
            else:
                self._hop(work, made, rule, at + 1)

    def _probe(self, work: ProbeWork, partial: Partial, rule: ProbeRule, of: int) -> None:
        """Probe on this host, in a round if possible."""
        if work.rounds is None or not work.rounds.add(partial, rule, of):
            self.alone(work, partial, rule, of)

    def alone(self, work: ProbeWork, partial: Partial, rule: ProbeRule, of: int) -> None:
        """Probe on this host, outside of rounds, with ``partial``, a part of ``of`` tuples."""
        if self.traffic is None:
            partial = self.tags.passing(partial, rule)
            if not partial.length:
                return
        access = work.access(rule)
        if self.traffic is not None:
            # Separate hops fill the gaps (fill steps).
            access = replace(access, gaps=(), fill=())
        meters = work.pieces.prober.meters
        before = meters[rule.out].pairs
        for joined in work.guard(rule, work.pieces.probe(partial, rule, access)):
            work.done(joined, rule)
        # Pairs count all ``of`` tuples, since tuples sent to other hosts have no match on this one.
        found = meters[rule.out].pairs - before
        meters[rule.out].pairs += round(found * (of / max(partial.length, 1) - 1))


@per_ruleset
def _last_needs(ruleset: Ruleset) -> list[Needs]:
    """Return a list that caches the ``Needs`` of the last batch; at first, it is empty."""
    return []


def needs_of(layout: Layout, context: BatchContext) -> Needs:
    """Return the columns that messages of this batch need; the last batch's object if equal."""
    known = _last_needs(layout.ruleset)
    found = _batch_needs(layout, context)
    if known and known[0].alike(found):
        return known[0]
    known[:] = [found]
    return found


def _batch_needs(layout: Layout, context: BatchContext) -> Needs:
    always = Needed()
    label_of = {
        (q.id, alias): label for q in layout.ruleset.queries for alias, label, _ in q.members
    }
    goals = [(r.query, r.start, r.ranking) for r in context.shedding.rations]
    if context.shedding.catch_up is not None:
        # Every edge needs all members' arrival numbers, which show a result's last member.
        always |= Needed(sigmas=frozenset(label_of.values()))
        for goal in context.shedding.catch_up.goals:
            owed = label_of.get((goal.query, goal.alias))
            if owed is not None:
                goals.append((goal.query, owed, goal.ranking))
    ranked: dict[str, frozenset[tuple[Label, str]]] = {}
    for query, label, ranking in goals:
        if label not in layout.relation_of:
            continue
        event_time = layout.streams[layout.stream(label)].event_time
        names = {name for name, _ in ranking.columns}
        read = frozenset((label, name) for name in names if name != event_time)
        timed = frozenset([label] if event_time in names else [])
        always |= Needed(sigmas=frozenset([label]), taus=timed, starts=read)
        ranked[query] = ranked.get(query, frozenset()) | read
    visible = {query: tuple(labels) for query, labels in context.scope.visible.items() if labels}
    return Needs(layout.routes, visible, always, ranked)
