"""Tests of how probes access stores: the new layout and the old, weaker filters, gaps of
intermediate results.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch_contract.plans.ruleset import (
    Edge,
    FillStep,
    KeptValues,
    KeyPart,
    ProbeRule,
    Ruleset,
    StoreId,
    TimeBound,
)
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.epochs.access import (
    Generations,
    accesses,
    known_attributes,
    relation_tiles,
)
from anabranch_runtime.epochs.lifecycle import enter_epoch, serves
from anabranch_runtime.state.coverage import OPEN, Tile
from anabranch_runtime.state.manifest import State, StoreState
from tests.support.cases.states import RS, base_store, mir_store, rules

KEY = (KeyPart(AttrRef(Label("R"), "a"), AttrRef(Label("S"), "a"), "bigint"),)
BY_A = [["S", "a"], "bigint"]
BY_B = [["S", "b"], "bigint"]
FREE = next(r for r in rules(0, {"q": RS}).relations if r.stream == "S")
HARD = next(r for r in rules(0, {"q": RS + " WHERE S.b > 3"}).relations if r.stream == "S")


def test_older_layouts_answer_for_the_batches_they_have() -> None:
    state = State(
        next_batch=9,
        stores={
            "S/new": base_store("S", (), since=6),
            "S/old": base_store("S", ((0, 5),)),
            "S/parallel": base_store("S", ((2, 7),), partition=BY_B),
        },
    )
    tiles = relation_tiles(state, FREE, (0, 9), "S/new", known_attributes(KEY))

    assert tiles == (Tile("S/new", (6, 9)), Tile("S/old", (0, 5)))


def test_a_copy_that_the_probe_can_be_routed_to_is_preferred() -> None:
    state = State(
        next_batch=4,
        stores={
            "S/1": base_store("S", ((0, 4),)),
            "S[a]": base_store("S", ((0, 4),), partition=BY_A),
            "S[b]": base_store("S", ((0, 4),), partition=BY_B),
        },
    )
    assert relation_tiles(state, FREE, (0, 4), "", known_attributes(KEY)) == (Tile("S[a]", (0, 4)),)
    assert relation_tiles(state, FREE, (0, 4), "S[b]", known_attributes(KEY)) == (
        Tile("S[b]", (0, 4)),
    )


def test_weaker_filters_answer_where_no_stricter_store_does() -> None:
    text = [str(f) for f in HARD.filter]
    state = State(
        next_batch=6,
        stores={
            "S/all": base_store("S", ((0, 5),)),
            "S/some": base_store("S[x]", ((3, 4),), filter=text),
        },
    )
    hard = relation_tiles(state, HARD, (0, 5))
    assert sorted(hard, key=lambda t: t.interval) == [
        Tile("S/all", (0, 2)),
        Tile("S/some", (3, 4)),
        Tile("S/all", (5, 5)),
    ]
    assert relation_tiles(state, FREE, (0, 5)) == (Tile("S/all", (0, 5)),)


def test_the_first_batch_of_a_relation_is_that_of_any_store_that_serves_it() -> None:
    drawn = Random(5)
    text = tuple(str(f) for f in HARD.filter)
    for _ in range(50):
        stores = {
            f"{stream}/{number}": base_store(
                stream,
                () if drawn.random() < 0.3 else ((drawn.randrange(4), 4),),
                since=drawn.choice([None, 5, 20]),
                filter=drawn.choice([(), text]),
            )
            for number in range(3)
            for stream in "RST"
        }
        # A store of an intermediate result has the rows of no single relation.
        stores["ST/1"] = mir_store("ST", ("S", "T"), ((0, 4),))
        state = State(next_batch=9, stores=stores)
        generations = Generations(state)
        for relation in (FREE, replace(HARD, id=RelationId("hard")), FREE):
            serving = [store for store in stores.values() if serves(store, relation)]
            starts = [low for store in serving for low, _ in store.covers(9)]
            assert generations.first_batch(relation) == min(starts, default=9)


def mir_rule(fill: tuple[str, ...] = ("S", "T")) -> ProbeRule:
    return ProbeRule(
        edge=Edge("in:R"),
        out=Edge("R>ST"),
        start=Label("R"),
        mir=MirId("ST"),
        store=StoreId("ST/1"),
        members=(Label("S"), Label("T")),
        key=KEY,
        fill=tuple(FillStep(RelationId(r), StoreId(f"{r}/1"), Label(r), KEY, (), ()) for r in fill),
    )


def mir_state(**stores: object) -> State:
    known = {
        "S/1": base_store("S", (), since=0),
        "T/1": base_store("T", (), since=2),
        **{name.replace("__", "/"): store for name, store in stores.items()},
    }
    return State(next_batch=12, stores=known)  # type: ignore[arg-type]


def test_batches_without_a_container_are_gaps_that_the_parts_fill() -> None:
    rules_ = rules(0, {"q": "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"})
    state = mir_state(ST__1=mir_store("ST", ("S", "T"), ((4, 6),), since=9))
    access = accesses(state, replace(rules_, probe_rules=(mir_rule(),)))["R>ST"]

    assert set(access.tiles) == {Tile("ST/1", (4, 6)), Tile("ST/1", (9, OPEN))}
    # T is stored from batch 2 on: a combination can't be older than the store of its latest part.
    assert access.gaps == ((2, 3), (7, 8))
    # A combination whose last member arrived in batch 8 or earlier has no later part.
    assert access.fill == ((Tile("S/1", (0, 8)),), (Tile("T/1", (2, 8)),))


def test_no_gap_needs_no_parts() -> None:
    rules_ = rules(0, {"q": "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"})
    state = mir_state(ST__1=mir_store("ST", ("S", "T"), (), since=2))
    access = accesses(state, replace(rules_, probe_rules=(mir_rule(),)))["R>ST"]

    assert access.tiles == (Tile("ST/1", (2, OPEN)),)
    assert (access.gaps, access.fill) == ((), ())


def test_a_container_that_keeps_too_little_is_no_container() -> None:
    rules_ = rules(0, {"q": "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"})
    rules_ = replace(rules_, probe_rules=(mir_rule(),))
    wide, narrow = [("S", "a"), ("T", "b")], [("S", "a")]
    loose, tight = [("S", "T", 100)], [("S", "T", 60)]
    for columns, bounds, usable in [
        (wide, loose, True),
        (wide, [("S", "T", 140)], True),
        (wide, [], True),
        (narrow, loose, False),
        (wide, tight, False),
        (wide, [*loose, ("T", "S", 500)], False),
    ]:
        state = mir_state(
            ST__1=mir_store("ST", ("S", "T"), (), since=8, columns=wide, bounds=loose),
            ST__old=mir_store("ST", ("S", "T"), ((2, 7),), columns=columns, bounds=bounds),
        )
        access = accesses(state, rules_)["R>ST"]
        assert (access.gaps == ()) is usable, (columns, bounds)


def test_a_container_that_keeps_fewer_values_is_no_container() -> None:
    rules_ = rules(0, {"q": "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"})
    rules_ = replace(rules_, probe_rules=(mir_rule(),))

    def without(*hashes: int) -> KeptValues:
        return KeptValues(AttrRef(Label("S"), "a"), "bigint", hashes, listed=False)

    for wanted, kept, usable in [
        (without(1, 2), None, True),
        (without(1, 2), without(2), True),
        (without(1, 2), without(1, 2), True),
        (without(2), without(1, 2), False),
        (None, without(2), False),
    ]:
        new = mir_store("ST", ("S", "T"), (), since=8)
        old = mir_store("ST", ("S", "T"), ((2, 7),))
        state = mir_state(
            ST__1=replace(new, spec=replace(new.spec, kept=wanted)),
            ST__old=replace(old, spec=replace(old.spec, kept=kept)),
        )
        access = accesses(state, rules_)["R>ST"]
        assert (access.gaps == ()) is usable, (wanted, kept)


def test_time_bounds_of_rules_are_of_no_concern_to_tiles() -> None:
    rules_ = rules(0, {"q": RS}, window=5)
    state = State(next_batch=3, stores={"R/1": base_store("R", (), since=0)})
    state = replace(state, stores={**state.stores, "S/1": base_store("S", (), since=1)})
    assert any(isinstance(b, TimeBound) for p in rules_.probe_rules for b in p.bounds)
    access = accesses(state, rules_)
    assert access["R>S"].tiles == (Tile("S/1", (1, OPEN)),)
    assert access["S>R"].tiles == (Tile("R/1", (0, OPEN)),)
    later = accesses(replace(state, next_batch=4), rules_)
    assert all(later[edge] is one for edge, one in access.items())


def test_answers_are_those_found_anew_however_the_state_goes_on() -> None:
    drawn = Random(3)
    for _ in range(12):
        rules_ = rules(
            0,
            {
                "q": "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b",
                "p": "SELECT R.a FROM R JOIN S ON R.a = S.a WHERE S.b > 3",
            },
        )
        rules_ = replace(rules_, probe_rules=(*rules_.probe_rules, mir_rule()))
        state = replace(enter_epoch(State(), rules_, 0), stores=_drawn_stores(drawn, rules_))
        for _ in range(10):
            # Nothing is cached for an equal ruleset that is another object.
            assert accesses(state, rules_) == accesses(state, replace(rules_))
            state = replace(state, next_batch=state.next_batch + drawn.choice([0, 1, 1, 1, 2]))
            if drawn.random() < 0.2:
                state = replace(state, stores=_drawn_stores(drawn, rules_))


def _drawn_stores(drawn: Random, rules_: Ruleset) -> dict[str, StoreState]:
    """Return random generations of the stores of ``rules_`` and of ST, with or without gaps."""
    found = {}
    for name, store in enter_epoch(State(), rules_, 0).stores.items():
        closed = () if drawn.random() < 0.5 else ((0, drawn.randrange(3)),)
        since = drawn.choice([None, 3, 4]) if drawn.random() < 0.5 else 3
        found[name] = replace(store, intervals=closed, open_since=since)
    for name in ("ST/1", "ST/old"):
        if name == "ST/1" or drawn.random() < 0.8:
            closed = ((drawn.randrange(2), drawn.randrange(2, 4)),)
            found[name] = mir_store("ST", ("S", "T"), closed, since=drawn.choice([None, 4, 9]))
    return found
