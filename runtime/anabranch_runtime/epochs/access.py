"""How each probe of a batch is answered: tiles over store generations, and gaps of MIRs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.queries.joins import RelationId
from anabranch_runtime.epochs.lifecycle import serves
from anabranch_runtime.state.coverage import Access, tile
from anabranch_runtime.state.slices import Source

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from anabranch_contract.plans.ruleset import FillStep, KeyPart, ProbeRule, Ruleset
    from anabranch_contract.protocol.activations import Activation
    from anabranch_contract.queries.joins import Relation
    from anabranch_runtime.state.coverage import Interval, Tile
    from anabranch_runtime.state.manifest import State, StoreState

    #: All of a rule that its access depends on.
    _Asked = tuple[str, str, frozenset[tuple[str, str]], tuple[FillStep, ...]]


def accesses(state: State, ruleset: Ruleset) -> dict[str, Access]:
    """Edge -> how its probe is answered in batch ``state.next_batch``."""
    relations = {r.id: r for r in ruleset.relations}
    found: dict[_Asked, Access] = {}
    answers: dict[str, Access] = {}
    for rule in ruleset.probe_rules:
        # Many queries' rules read the same stores in the same way.
        asked = (rule.mir, rule.store, known_attributes(rule.key), tuple(rule.fill))
        if asked not in found:
            found[asked] = _access(state, rule, relations)
        answers[rule.out] = found[asked]
    return answers


def latest_tiles(state: State, ruleset: Ruleset) -> dict[str, tuple[Tile, ...]]:
    """Stream that keeps the latest -> where its tuples are that may supersede others."""
    relations = {r.id: r for r in ruleset.relations}
    since = latest_since(state)
    return {
        str(rule.stream): relation_tiles(
            state,
            relations[rule.relation],
            (since[rule.stream], state.next_batch),
            rule.store,
            rule.key,
        )
        for rule in ruleset.latest_rules
    }


def latest_since(state: State) -> dict[str, int]:
    """Stream that keeps the latest -> the first batch of the tuples that supersede others."""
    return {n: s.latest_since for n, s in state.streams.items() if s.latest_since is not None}


def known_attributes(key: Sequence[KeyPart]) -> frozenset[tuple[str, str]]:
    """The build attributes that a probing tuple knows, with their key types."""
    return frozenset((k.build.attribute, k.type) for k in key)


def _access(state: State, rule: ProbeRule, relations: dict[RelationId, Relation]) -> Access:
    now = state.next_batch
    if not rule.fill:
        relation = relations[RelationId(rule.mir)]
        return Access(
            relation_tiles(state, relation, (0, now), rule.store, known_attributes(rule.key))
        )
    usable = containers(state, rule.store)
    filled = [relations[step.relation] for step in rule.fill]
    first = max(first_batch(state, relation) for relation in filled)
    tiles, gaps = tile([(0, now)], [(name, store.covers(now)) for name, store in usable])
    gaps = sorted((max(low, first), high) for low, high in gaps if high >= first)
    if not gaps:
        return Access(tuple(tiles))
    reach = (0, max(high for _, high in gaps))
    fill = tuple(
        relation_tiles(state, relation, reach, step.store, known_attributes(step.key))
        for relation, step in zip(filled, rule.fill, strict=True)
    )
    return Access(tuple(tiles), tuple(gaps), fill)


def relation_tiles(
    state: State,
    relation: Relation,
    wanted: Interval,
    preferred: str = "",
    known: Collection[tuple[str, str]] = (),
) -> tuple[Tile, ...]:
    """Cover ``wanted`` with stores of ``relation``: the preferred copy, then copies that the
    probing tuple can be routed to, as it knows the values of these attributes in these key types,
    then the rest; stricter filters before weaker ones.
    """

    def rank(item: tuple[str, StoreState]) -> tuple[bool, bool, int, str]:
        name, store = item
        partition = store.spec.partition
        routed = partition is not None and (partition[0].attribute, partition[1]) in known
        return (name != preferred, not routed, -len(store.filter), name)

    useful = sorted(((n, s) for n, s in state.stores.items() if serves(s, relation)), key=rank)
    tiles, _ = tile([wanted], [(n, s.covers(state.next_batch)) for n, s in useful])
    return tuple(tiles)


def stored_in(state: State, relation: Relation, batches: Interval) -> tuple[Source, ...]:
    """The stored rows of ``relation`` that arrived in ``batches``."""
    return tuple(
        Source(tile.store, segment, tile.interval, 0, segment.rows)
        for tile in relation_tiles(state, relation, batches)
        for segment in state.stores[tile.store].segments
        if segment.first_batch <= tile.interval[1] and segment.last_batch >= tile.interval[0]
    )


def first_batch(state: State, relation: Relation) -> int:
    """The first batch of which anything of ``relation`` is stored."""
    starts = [
        low
        for store in state.stores.values()
        if serves(store, relation)
        for low, _ in store.covers(state.next_batch)
    ]
    return min(starts, default=state.next_batch)


def containers(state: State, preferred: str) -> list[tuple[str, StoreState]]:
    """Generations of the MIR behind ``preferred`` that have all that its users need: at least
    its columns, bounds at most as tight.
    """
    wanted = state.stores[preferred].spec
    columns = set(wanted.columns)
    bounds = {(b.earlier, b.later): b.micros for b in wanted.bounds}
    found = []
    for name, store in state.stores.items():
        spec = store.spec
        if spec.mir != wanted.mir or not columns <= set(spec.columns):
            continue
        given = ((b, bounds.get((b.earlier, b.later))) for b in spec.bounds)
        if all(own is not None and own <= b.micros for b, own in given):
            found.append((name, store))
    return sorted(found, key=lambda item: (item[0] != preferred, item[0]))


def seen_from(
    activation: Activation, members: tuple[tuple[str, str, str], ...]
) -> dict[str, tuple[int, int | None]]:
    """Label -> what its visibility begins with, for labels that do not see everything."""
    limits = {}
    for alias, label, _ in members:
        seen = activation.visible_from[alias]
        if seen.batch > 0 or seen.event_time is not None:
            limits[label] = (seen.batch, seen.event_time)
    return limits
