"""Invariants that the runtime's state must satisfy after every batch, and counts of a run's events.

Shares no code with the checked parts except the types of state and ruleset.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import ProbeRule, Ruleset, home_partition
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.joins import Relation
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.columns.arrays import U64
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import StateError
from anabranch_runtime.index.filters import bits_of, word_of
from anabranch_runtime.index.hash_index import HashIndex
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.state.manifest import Chains, State, StoreState
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA
from anabranch_runtime.storage.segment_cache import read_segment
from anabranch_runtime.task.context import BatchContext


def may_have(found: U64, hashes: U64) -> NDArray[np.bool_]:
    """Return a mask of the ``hashes`` that the filter ``found`` can't exclude."""
    if not len(found):
        return np.ones(len(hashes), np.bool_)
    wanted: Any = hashes
    bits = bits_of.py_func(wanted)
    held: NDArray[np.bool_] = found[word_of.py_func(wanted, len(found))] & bits == bits
    return held


def check_index(index: HashIndex) -> None:
    """Check the invariants of a hash index that probes rely on."""
    n = len(index.hashes)
    k = (len(index.starts) - 1).bit_length() - 1
    assert len(index.rows) == n
    assert len(index.starts) == 2**k + 1
    assert k >= 1
    ups = index.hashes[1:] >= index.hashes[:-1]
    assert bool(ups.all())
    assert index.unique == (not bool((index.hashes[1:] == index.hashes[:-1]).any()))
    assert int(index.starts[0]) == 0
    assert int(index.starts[-1]) == n
    buckets = index.hashes >> np.uint64(64 - k)
    assert np.array_equal(np.searchsorted(buckets, np.arange(2**k)), index.starts[:-1])
    assert bool(may_have(index.filter, index.hashes).all())


def check_state(state: State) -> None:
    """Check the invariants that every committed state has.

    Raises:
        StateError: names the first violated invariant.
    """
    for name, store in state.stores.items():
        spans = sorted(store.covers(max(state.next_batch - 1, 0)))
        for (_, last), (first, _) in itertools.pairwise(spans):
            if first <= last:
                raise StateError("overlap", f"store {name} covers batch {first} twice")
        for segment in store.segments:
            if segment.last_batch >= state.next_batch:
                raise StateError("future-segment", f"store {name} has rows of a future batch")
            if not store.is_base:
                continue
            if segment.first_batch < spans[0][0] or segment.last_batch > spans[-1][1]:
                raise StateError("stray-segment", f"store {name} has rows outside its batches")


def _check_load(reports: Sequence[TaskReport]) -> None:
    """Assert that probe times of partitions add up, and that each partition has one host."""
    whose: dict[tuple[int, int], str] = {}
    for report in reports:
        spent = sum(counts.seconds for counts in report.measured.edges.values())
        said = sum(sum(seconds) for seconds in report.host.load.values())
        assert said == 0 or abs(said - spent) <= 1e-6 * max(spent, 1), (said, spent)
        for count, seconds in report.host.load.items():
            for partition in (p for p, s in enumerate(seconds) if s):
                assert whose.setdefault((count, partition), report.host.name) == report.host.name


class Watch:
    """Checks invariants while a pipeline runs. ``events``: number of occurrences of each event.
    ``objects``: folder of the object store behind the state, if there is one.
    """

    def __init__(self, root: Path, events: Counter[str], objects: Path | None = None) -> None:
        self.root = root
        self.objects = objects
        self.events = events
        self._specs: dict[str, tuple[object, int]] = {}
        self._before: State | None = None
        #: The stores (whether of a relation, id) that exist now, and that have ever existed.
        self._there: set[tuple[bool, str]] = set()
        self._known: set[tuple[bool, str]] = set()
        self._tasks: tuple[int, int] | None = None
        #: Folder -> its manifests' files (inode, time, size) and their reader.
        self._chains: dict[Path, tuple[dict[Path, tuple[int, int, int]], Chains]] = {}

    def done(self, context: BatchContext, rules: Ruleset, reports: Sequence[TaskReport]) -> None:
        """Record an attempt at a batch, which may be repeated."""
        happened = set(_of_rules(rules)) | set(_of_context(context, rules))
        if context.backfill is not None:
            happened.add("backfill")
        loaded = {s for r in reports for s, m in r.measured.streams.items() if m.input}
        happened |= {"empty batch"} if not loaded else set()
        happened |= {"one stream's batch"} if len(loaded) == 1 and len(rules.streams) > 1 else set()
        now = (context.batch, len(reports))
        if self._tasks is not None and self._tasks[1] != now[1]:
            same = self._tasks[0] == now[0]
            happened.add(f"tasks change between {'attempts' if same else 'batches'}")
        self._tasks = now
        self.events.update(happened)
        _check_load(reports)

    def committed(self, state: State, rules: Ruleset) -> None:
        """Check the state after a batch.

        Raises:
            AssertionError: an invariant does not hold.
        """
        check_state(state)
        assert self._found(self.root) == state, "a restart would find another state"
        self._stores(state, rules)
        self._containers(state)
        self._visible(state, rules)
        self._packs(state)
        self._places(state)
        self._reads(state)
        self._compare(state)
        self._before = state

    def _found(self, root: Path) -> State:
        """Return the state in the newest manifest below ``root``. All manifests are read again if
        an earlier one has changed or is gone, otherwise new ones only."""
        files = ((path, path.stat()) for path in (root / "manifest").glob("*.json"))
        there = {path: (one.st_ino, one.st_mtime_ns, one.st_size) for path, one in files}
        known, chains = self._chains.get(root, ({}, Chains(root)))
        if not known.items() <= there.items():
            chains = Chains(root)
        self._chains[root] = there, chains
        return chains.state(max(int(path.stem) for path in there))

    def ended(self, state: State) -> None:
        """Count events at the end of the run."""
        for query in state.queries.values():
            for before, after in itertools.pairwise((*query.earlier, query)):
                self._anew(before, after)
        for activation in (a for q in state.queries.values() for a in (*q.earlier, q)):
            for seen in activation.visible_from.values():
                if 0 < seen.batch < activation.activated_batch:
                    self.events["sees part of the past"] += 1
                if seen.batch == 0 < activation.activated_batch:
                    self.events["sees all of the past"] += 1
                if seen.event_time is not None:
                    self.events["sees what has not expired"] += 1

    def _places(self, state: State) -> None:
        """Assert that every stored row is in the home partition of its key or, if the key was hot
        in the row's batch, in a partition over which its store spread the key's rows.
        """
        for store in state.stores.values():
            spec = store.spec
            if spec.partition is None or spec.partitions == 1:
                continue
            (ref, kind), known = spec.partition, {one.hash: one for one in store.dealt}
            self.events["hot value"] += any(one.now for one in store.dealt)
            self.events["hot value cooled"] += any(not one.now for one in store.dealt)
            name = ref.attribute if store.is_base else f"{ref.label}.{ref.attribute}"
            for segment in store.segments if known else ():
                if not (self.root / segment.path).exists():
                    continue
                rows = read_segment(str(self.root), segment).batch
                if name not in rows.schema.names:
                    continue
                keys = key_vector([rows.column(name)], [kind])
                names = [n for n in rows.schema.names if n == SIGMA or n.startswith(f"{SIGMA}:")]
                arrivals = zip(*(rows.column(n).to_pylist() for n in names), strict=True)
                last = [max(members) for members in arrivals]
                for at, value in enumerate(keys.hashes.tolist()):
                    if keys.valid is not None and not keys.valid[at]:
                        continue
                    home = home_partition(value, spec.partitions)
                    if segment.partition == home:
                        continue
                    assert value in known, f"{store.spec.id}: a row is in no partition of its own"
                    entry, arrived = known[value], last[at] >> OFFSET_BITS
                    assert segment.partition in entry.partitions
                    assert arrived >= entry.first
                    assert entry.now or arrived <= entry.last
                    kind_of = "base" if store.is_base else "MIR"
                    self.events[f"hot row away from home, {kind_of}"] += 1

    def _reads(self, state: State) -> None:
        """Check that counts of look-ups in stores add up."""
        for known in (state.measured.reads, state.measured.reads_before):
            assert known.keys() <= state.stores.keys()
            for found in (c for by_index in known.values() for c in by_index.values()):
                assert min(asdict(found).values()) >= 0
                assert found.found <= min(found.probes, found.matches)
                assert (found.found > 0) == (found.matches > 0)
                assert found.matches == 0 or found.looked > 0
                passed = found.by_batch + found.by_partition + found.by_time
                self.events["segments passed over"] += passed > 0
                self.events["segments filtered"] += found.filtered > 0
        for edge in state.measured.edges.values():
            assert 0 <= edge.found <= min(edge.probes, edge.matches)
            assert (edge.found > 0) == (edge.matches > 0)
            assert 0 <= edge.dropped <= edge.asked
            self.events["asked ahead"] += edge.asked > edge.dropped
            self.events["dropped ahead"] += edge.dropped > 0

    def _anew(self, before: Activation, after: Activation) -> None:
        """Check a query that was activated again, because a ttl has changed its bounds, or a stream
        no longer keeps the latest row of the same key.
        """
        assert before.retention is not None
        assert after.retention is not None
        for old, new in zip(before.retention, after.retention, strict=True):
            for one, other in zip(old, new, strict=True):
                if one != other:
                    looser = other is None or (one is not None and other > one)
                    self.events[f"activated anew, {'looser' if looser else 'tighter'}"] += 1
        if before.retention == after.retention:
            self.events["activated anew, no longer the latest of the same key"] += 1
        hidden = [s.event_time for s in after.visible_from.values() if s.event_time is not None]
        if hidden:
            self.events["activated anew, less in sight"] += 1
        if after.results > before.results > 0:
            self.events["results by several activations"] += 1

    def _stores(self, state: State, rules: Ruleset) -> None:
        """Check that a store exists exactly if the live rules fill it or need its rows."""
        live = {s.id for s in rules.stores}
        assert live <= set(state.stores), f"no store {sorted(live - set(state.stores))}"
        probed = {p.mir for p in rules.probe_rules}
        for name, store in state.stores.items():
            if name in live:
                assert store.open_since is not None, f"{name} is filled but not open"
                continue
            assert store.open_since is None, f"{name} is open but not filled"
            if store.is_base:
                needed = any(_holds(store, r) for r in rules.relations)
            else:
                needed = store.spec.mir in probed
            assert needed, f"nobody needs {name}, yet it exists"
            self.events["closed container kept"] += 1

    def _containers(self, state: State) -> None:
        """Check that a store generation keeps its layout, however many others there are."""
        for name, store in state.stores.items():
            layout = (store.spec.partition, store.spec.partitions)
            assert self._specs.setdefault(name, layout) == layout, f"{name} has another layout"
            for segment in store.segments:
                assert segment.store == name, f"{name} has a segment of {segment.store}"
                assert segment.partition < layout[1], f"{name} has no partition {segment.partition}"
        for name in set(self._specs) - set(state.stores):
            del self._specs[name]

    def _visible(self, state: State, rules: Ruleset) -> None:
        """Check that, for every active query, all batches that it may see are stored."""
        relations = {r.id: r for r in rules.relations}
        for query in rules.queries:
            if len(query.members) == 1:
                continue  # nothing is probed, so nothing need be stored
            seen = state.queries[query.id].visible_from
            for alias, _, relation in query.members:
                others = [label for a, label, _ in query.members if a != alias]
                if set(query.looked_up).issuperset(others):
                    # The query never probes this relation.
                    self.events["looks up and is not stored"] += 1
                    continue
                held: set[int] = set()
                for store in state.stores.values():
                    if store.is_base and _holds(store, relations[relation]):
                        for low, high in store.covers(state.next_batch - 1):
                            held |= set(range(low, high + 1))
                missing = set(range(seen[alias].batch, state.next_batch)) - held
                assert not missing, f"{query.id}.{alias}: batches {sorted(missing)} are lost"

    def _packs(self, state: State) -> None:
        """Assert that every pack in the manifest exists; with an object store, that it has all
        packs and durable documents.
        """
        named = {s.path for store in state.stores.values() for s in store.kept}
        here = {f"segments/{p.name}" for p in (self.root / "segments").glob("*.pack")}
        if self.objects is None:
            assert named <= here, f"no file {sorted(named - here)}"
            return
        there = {f"segments/{p.name}" for p in (self.objects / "segments").glob("*.pack")}
        assert named <= there, f"no object {sorted(named - there)}"
        self.events["pack not in the cache"] += 1 if named - here else 0
        assert self._found(self.objects) == state, "the store has another state"
        for name in ("pipeline.json", f"journal/{state.next_batch - 1:012d}.json"):
            assert (self.objects / name).read_bytes() == (self.root / name).read_bytes()
        kept = {p.name for p in (self.root / "rulesets").glob("*.json")}
        assert kept == {p.name for p in (self.objects / "rulesets").glob("*.json")}

    def _compare(self, state: State) -> None:
        if any(t is not None for s in state.stores.values() for t in s.expired_below):
            self.events["expired"] += 1
        for name, store in self._before.stores.items() if self._before is not None else ():
            if store.backfill is not None and name not in state.stores:
                self.events["backfill dropped"] += 1
        self.events["partition on another of the same hosts"] += _has_moved(self._before, state)
        now = state.next_batch - 1
        if self._before is not None and _merged(state) - _merged(self._before):
            self.events["merge"] += 1
        if any(s.level for store in state.stores.values() for s in store.pending):
            self.events["merge of a backfill"] += 1
        for name, store in self._before.stores.items() if self._before is not None else ():
            after = state.stores.get(name)
            if after is None or after.expired_below != store.expired_below:
                continue
            keep = any(state.streams[s].latest_since is not None for s in store.streams)
            if keep and _left_out(store, after):
                self.events["merge leaves out what is not the latest"] += 1
        if any(s.latest_since is not None for s in state.streams.values()):
            self.events["keeps the latest"] += 1
        for name, store in state.stores.items():
            if store.open_since is not None and store.intervals:
                self.events["layout taken up again"] += 1
            known = self._before.stores.get(name) if self._before is not None else None
            covered = sum(1 + high - low for low, high in store.covers(now))
            if known is not None:
                covered -= sum(1 + high - low for low, high in known.covers(now - 1))
            # A batch extends the coverage by itself; a longer extension is the past of a finished
            # backfill.
            if covered > 1:
                self.events["backfill done"] += 1
            elif known is not None and known.backfill is not None and store.backfill is None:
                self.events["backfill dropped"] += 1
            if known is not None and _first(known, now) < _first(store, now):
                self.events["past of an MIR forgotten"] += 1
        open_now = [s for s in state.stores.values() if s.open_since is not None]
        there = {(s.is_base, str(s.spec.mir)) for s in open_now}
        for base, _ in (there & self._known) - self._there:
            self.events[f"{'relation' if base else 'MIR'} introduced again"] += 1
        self._there = there
        self._known |= there


def _left_out(before: StoreState, after: StoreState) -> bool:
    """Return whether a merge has left out rows."""
    gone = [s for s in before.segments if s not in after.segments]
    merged = [s for s in after.segments if s not in before.segments and "/merged-" in s.path]
    return any(
        m.rows < sum(s.rows for s in parts)
        for m in merged
        if (
            parts := [
                s
                for s in gone
                if s.partition == m.partition
                and m.first_batch <= s.first_batch
                and s.last_batch <= m.last_batch
            ]
        )
    )


def _has_moved(before: State | None, state: State) -> bool:
    """Return whether a partition has moved between hosts that exist before and after."""
    if before is None or before.hosts.placement is None or state.hosts.placement is None:
        return False
    known = dict(before.hosts.placement.owners)
    return before.hosts.placement.hosts == state.hosts.placement.hosts and any(
        known.get(count, owners) != owners for count, owners in state.hosts.placement.owners
    )


def _merged(state: State) -> set[str]:
    """Return the packs with merged segments that are probed."""
    return {s.path for store in state.stores.values() for s in store.segments if s.level > 0}


def _first(store: StoreState, now: int) -> int:
    """Return the first batch that a store covers; if there is none, the one after ``now``."""
    return min((low for low, _ in store.covers(now)), default=now + 1)


def _holds(store: StoreState, relation: Relation) -> bool:
    """Return whether a base store's rows include the relation's."""
    wanted = {str(f) for f in relation.filter}
    return store.streams == (relation.stream,) and set(store.filter) <= wanted


def _of_rules(rules: Ruleset) -> set[str]:
    happened = {f"parallelism {s.partitions}" for s in rules.stores}
    base = {s.mir for s in rules.stores if len(s.members) == 1}
    if any(s.mir not in base for s in rules.stores):
        happened.add("MIR")
    copies = [(s.mir, s.owner) for s in rules.stores]
    if len(set(copies)) < len(copies):
        happened.add("several copies")
    if any(s.owner for s in rules.stores):
        happened.add("private store")
    if rules.levels > 2:
        happened.add("three levels")
    specs = {s.id: s for s in rules.stores}
    for rule in rules.probe_rules:
        partition = specs[rule.store].partition
        if partition is None:
            happened.add("stored round robin")
        elif any((k.build, k.type) == partition for k in rule.key):
            happened.add("routed probe")
        else:
            happened.add("broadcast probe")
        if len(rule.key) > 1:
            happened.add("composite probe")
        if any(specs[asked.store].mir not in base for asked in rule.ahead):
            happened.add("MIR asked ahead")
        if rule.inclusive:
            happened.add("one tuple may fill two aliases")
        if rule.residuals:
            happened.add("residual on an edge")
        if rule.bounds:
            happened.add("bound on an edge")
    uses = [p.edge for p in rules.probe_rules] + [o.edge for o in rules.output_rules]
    inner = {p.out for p in rules.probe_rules}
    if any(uses.count(edge) > 1 for edge in inner):
        happened.add("shared prefix")
    if _nested(rules, base):
        happened.add("nested MIR")
    return happened


def _nested(rules: Ruleset, base: set[MirId]) -> bool:
    """Return whether an MIR is maintained by probing another one."""
    above: dict[str, ProbeRule] = {p.out: p for p in rules.probe_rules}
    for rule in rules.store_rules:
        edge: str = rule.edge
        while edge in above:
            if above[edge].mir not in base:
                return True
            edge = above[edge].edge
    return False


def _of_context(context: BatchContext, rules: Ruleset) -> set[str]:
    happened: set[str] = set()
    live = {s.id for s in rules.stores}
    for access in context.scope.access.values():
        tiles = [*access.tiles, *(t for one in access.fill for t in one)]
        if len(access.tiles) > 1:
            happened.add("probe of several containers")
        if any(t.store not in live for t in tiles):
            happened.add("probe of an old container")
        if access.gaps:
            happened.add("gap filled from the parts")
        if access.gaps and access.tiles:
            happened.add("gap beside a container")
        if len({context.stores[t.store].partitions for t in access.tiles}) > 1:
            happened.add("probe across layouts")
    return happened
