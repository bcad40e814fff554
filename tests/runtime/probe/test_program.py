"""Tests of probe programs that successive rulesets share parts of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.plans.rows import Decoded, RulesetRows, decoded
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.epochs.ownership import without
from anabranch_runtime.probe import program as programs
from anabranch_runtime.probe.program import ProbeProgram
from anabranch_runtime.probe.program import program as probe_program
from anabranch_runtime.tags import program as tags
from anabranch_runtime.tags.choices import Choices
from anabranch_runtime.tags.program import RoundChoices, TagProgram, tag_program
from anabranch_runtime.tags.trees import rule_trees

pytestmark = pytest.mark.fast

COLUMNS = {"k": "bigint", "m": "string", "v": "int", "w": "double"}
NAMES = ("a", "b", "c", "d")
STREAMS: dict[str, Stream] = {
    name: Stream(StreamName(name), tuple((c, parse_type(t)) for c, t in COLUMNS.items()))
    for name in NAMES
}


def _query(name: str, rng: Random) -> JoinQuery:
    """Draw a join of two to four streams with conditions on some of them and on pairs."""
    joined = rng.sample(NAMES, rng.randint(2, 4))
    text = f"SELECT {joined[0]}.v FROM {joined[0]}"
    for before, one in itertools.pairwise(joined):
        key = rng.choice(("k", "m", "v"))
        text += f" JOIN {one} ON {before}.{key} = {one}.{key}"
    conditions = [f"{x}.v > {rng.randint(0, 3)}" for x in joined if rng.random() < 0.4]
    if rng.random() < 0.3:
        conditions.append(f"{joined[0]}.w < {joined[1]}.w")
    if rng.random() < 0.2:
        conditions.append(f"{joined[0]}.v / {joined[1]}.v > 2")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    whole: dict[str, tuple[Expr, ...]] = dict.fromkeys(NAMES, ())
    return parse_sql(name, text + where, STREAMS, relaxed=whole)


def _text(queries: list[JoinQuery], rng: Random, epoch: int) -> str:
    options = Options(optimizer=Optimizer.SHARED, mir=rng.random() < 0.5)
    plan = optimise(queries, Statistics(), options)
    made = compile_ruleset(
        plan, queries, list(STREAMS.values()), epoch=epoch, parallelism=1, sinks={}
    )
    return rulesets.dumps(made)


def _forget() -> None:
    """Let the next program be made without parts of earlier ones."""
    tags._NEWEST[:] = [tags._Generation(int(tags._NEWEST[-1].name[len(tags.TAGS) :]) + 1)]
    programs._NEWEST.clear()


def _conditions(found: TagProgram) -> dict[int, dict[int, str]]:
    """Return the texts of predicates by the identity of their index and their number."""
    return {
        id(index): {number: str(some) for some, number in index._numbers.items()}
        for index in found.indexes.values()
    }


def _choices(
    made: RoundChoices | None, rule: int, known: Mapping[int, Mapping[int, str]], names: list[str]
) -> object:
    """Describe the choices of a rule or output, with names and texts instead of numbers."""
    if made is None:
        return [], []
    first, last, begun, end = made.rules[rule].tolist()
    texts = [known[id(made.indexes[n])] for n in made.index_of[first:last].tolist()]
    rows = made.predicates[begun:end].reshape(-1, len(texts)).tolist() if texts else []
    alternatives = [[some.get(n) for n, some in zip(row, texts, strict=True)] for row in rows]
    columns = [(at, names[column]) for at, column, _, _ in made.labels[first:last].tolist()]
    return columns, sorted(alternatives, key=str)


def _described(made: ProbeProgram, found: TagProgram) -> dict[str, Any]:
    """Describe a program by edge, with names and texts instead of numbers."""
    known = _conditions(found)
    names = [name.replace(found.name, "#") for name in made.names]
    outputs = made.outputs
    ends = np.zeros(len(made.rules) + 1, np.int64) if outputs is None else outputs.ends
    rules = {}
    for n, rule in enumerate(made.rules):
        key, keys, bound, bounds, order, orders, number, exact = made.table[n].tolist()
        lookup = made.lookups[number]
        children = made.children[made.child_ends[n] : made.child_ends[n + 1]]
        put_out = [] if outputs is None else range(int(ends[n]), int(ends[n + 1]))
        rules[str(rule.out)] = {
            "tuples": (made.places[n], made.kinds[n]),
            "keys": [
                (at, names[column], built if built < 0 else names[built])
                for at, column, built in made.keys[key:keys].tolist()
            ],
            "bounds": [
                (at, names[column], *rest)
                for at, column, *rest in made.bounds[bound:bounds].tolist()
            ],
            "orders": made.orders[order:orders].tolist(),
            "lookup": (lookup.rule.mir, lookup.rule.store, lookup.rule.fill, lookup.kind),
            "index": (lookup.index, lookup.name, exact),
            "children": [made.rules[child].out for child in children],
            "others": [one.out for one in made.others[n]],
            "masks": [bool(m[n]) for m in (made.delivers, made.checked, made.untagged)],
            "choices": _choices(made.choices, n, known, names),
            "outputs": sorted(
                (
                    (_choices(outputs.choices, at, known, names), outputs.rules[at][1])
                    for at in put_out
                    if outputs is not None and outputs.rules[at][0] == n
                ),
                key=str,
            ),
            "beyond": outputs is None or bool(outputs.delivers[n]),
        }
    assert ends[-1] == sum(len(one["outputs"]) for one in rules.values())
    assert {edge: made.rules[n].out for edge, n in made.numbers.items()} == {e: e for e in rules}
    read = {
        kind: sorted(names[column] for column in columns) for kind, columns in made.read.items()
    }
    return {"rules": rules, "read": read, "tags": _tags(found)}


def _tags(found: TagProgram) -> dict[str, Any]:
    """Describe a tag program with texts instead of numbers."""
    texts = _conditions(found)

    def described(one: Choices) -> object:
        some = [texts[id(found.indexes[x])] for x in one.labels]
        rows = one.predicates.tolist()
        return one.labels, sorted(
            ([t.get(n) for n, t in zip(row, some, strict=True)] for row in rows), key=str
        )

    return {
        "inputs": {edge: described(one) for edge, one in found.inputs.items()},
        "results": {edge: described(one) for edge, one in found.results.items()},
        "residuals": dict(found.residuals),
        "outputs": {
            edge: (one.untagged, described(one.choices), sorted(map(str, one.rules)))
            for edge, one in found.outputs.items()
        },
    }


@pytest.mark.parametrize("seed", range(8))
def test_programs_from_parts_of_earlier_rulesets_equal_programs_made_anew(seed: int) -> None:
    rng = Random(seed)
    pool = [_query(f"q{n}", rng) for n in range(14)]
    running = pool[:6]
    before: Decoded | None = None
    reused = 0
    _forget()
    for epoch in range(6):
        before = decoded(RulesetRows.of(_text(running, rng, epoch)), before)
        ruleset = before.ruleset
        if rng.random() < 0.3:
            ruleset = without(ruleset, frozenset({str(ruleset.queries[0].id)}))
        trees = tags._NEWEST[-1].trees
        last = dict(trees._known)
        found = tag_program(ruleset)
        described = _described(probe_program(ruleset, found), found)
        reused += sum(last.get(key) is one for key, one in trees._known.items())
        kept = list(tags._NEWEST), list(programs._NEWEST)
        _forget()
        anew = rulesets.loads(rulesets.dumps(ruleset))
        other = tag_program(anew)
        assert _described(probe_program(anew, other), other) == described
        tags._NEWEST[:], programs._NEWEST[:] = kept
        running = [q for q in running if rng.random() < 0.8] or running[:1]
        running += rng.sample([q for q in pool if q not in running], 2)
    assert reused


def test_a_probe_tree_is_the_same_for_a_later_ruleset_with_its_rules() -> None:
    rng = Random(3)
    queries = [_query(f"q{n}", rng) for n in range(5)]
    text = _text(queries, Random(0), 0)
    first = decoded(RulesetRows.of(text))
    again = decoded(RulesetRows.of(rulesets.renumbered(text, 1)), first)
    assert again.ruleset is not first.ruleset
    trees = rule_trees(first.ruleset)
    assert [t.facts for t in trees] == [t.facts for t in rule_trees(again.ruleset)]
    other = decoded(RulesetRows.of(_text(queries[:-1], Random(0), 2)), first).ruleset
    assert {t.facts for t in rule_trees(other)} != {t.facts for t in trees}
    assert sum(len(t.rules) for t in trees) == len(first.ruleset.probe_rules)


def test_tables_of_rules_begin_where_the_ones_of_earlier_trees_end() -> None:
    rng = Random(5)
    ruleset = decoded(
        RulesetRows.of(_text([_query(f"q{n}", rng) for n in range(8)], rng, 0))
    ).ruleset
    made = probe_program(ruleset, tag_program(ruleset))
    for first, tables in ((0, made.keys), (2, made.bounds), (4, made.orders)):
        spans = made.table[:, first : first + 2]
        assert np.array_equal(spans[1:, 0], spans[:-1, 1])
        assert spans[-1, 1] == len(tables)
    assert len(made.child_ends) == len(made.rules) + 1
