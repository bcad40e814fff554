"""Tests that patches restore exactly the ruleset that they were made from, and unchanged rows are
the same objects.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract import codec
from anabranch_contract.errors import RulesetError
from anabranch_contract.plans import patches
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.patches import applied, difference, is_patch
from anabranch_contract.plans.rows import RowTexts, RulesetRows, decoded, read_ruleset, renumbered
from anabranch_contract.plans.ruleset import (
    BackfillRule,
    FillStep,
    LatestRule,
    Ruleset,
    RulesetId,
    StoreId,
    Substreams,
    TimeBound,
)
from anabranch_contract.queries.expressions import Literal
from anabranch_contract.queries.joins import Label, RelationId, StreamName
from anabranch_contract.queries.types import parse_type
from tests.support.cases.states import MINUTE, RS, ST, rules

CHAIN = 'SELECT R.a, T.b AS "ü" FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b WHERE S.b > 1'
SECTIONS = [f.name for f in fields(Ruleset) if f.name not in ("epoch", "revision", "version")]


def made() -> list[Ruleset]:
    """Rulesets with something in every section."""
    queries = {"rs": RS, "st": ST, "chain": CHAIN, "count": f"SELECT count(*) AS n FROM ({RS}) x"}
    found = [
        rules(0, {"rs": RS}, window=MINUTE),
        rules(1, {"chain": CHAIN, "st": ST}),
        rules(2, queries, parallelism=3),
    ]
    store = found[0].stores[0]
    fill = FillStep(RelationId("R"), store.id, Label("R"), found[0].probe_rules[0].key)
    bound = TimeBound(Label("R"), Label("S"), -5)
    extra: dict[str, Any] = {
        # Equal as Python values, not as JSON texts.
        "derived": tuple(
            (StreamName("R"), text, Literal(value, parse_type(kind)))
            for text, value, kind in (
                ("1", 1, "bigint"),
                ("1", True, "boolean"),
                ("1", 1.0, "double"),
                ("0", 0.0, "double"),
                ("0", -0.0, "double"),
                ("€\n", '"epoch":1', "string"),
            )
        ),
        "sketches": ((RelationId("R"), (("a", "bigint"),)), (RelationId("S"), ())),
        "backfill_rules": (
            BackfillRule(store.id, Label("R"), (fill,)),
            BackfillRule(StoreId("x"), Label("S"), (replace(fill, bounds=(bound,)),)),
        ),
        "substreams": (
            Substreams(Label("R"), "a", "bigint", ((3, 1 << 63),), 2),
            Substreams(Label("S"), "b", "string", others=3),
        ),
        "latest_rules": (
            LatestRule(StreamName("R"), RelationId("R"), store.id, (("a", "bigint"),)),
        ),
    }
    return [*found, replace(found[0], **extra)]


POOL = {name: [row for one in made() for row in getattr(one, name)] for name in SECTIONS}


@st.composite
def drawn(draw: st.DrawFn) -> Ruleset:
    """Draw random rows in random order; some of them twice."""
    parts: dict[str, Any] = {}
    parts |= {name: tuple(draw(st.lists(st.sampled_from(POOL[name]), max_size=9))) for name in POOL}
    return Ruleset(epoch=draw(st.integers(0, 99)), revision=draw(st.integers(0, 2)), **parts)


@given(drawn(), drawn())
def test_a_patch_makes_exactly_its_ruleset(base: Ruleset, new: Ruleset) -> None:
    before, text = rulesets.dumps(base), rulesets.dumps(new)
    patch = difference(base.id, before, text)
    short = patch.dumps()
    read = patches.loads(short)
    assert is_patch(short)
    assert not is_patch(text)
    assert (read.base, read.dumps()) == (base.id, short)
    assert applied(before, read) == text
    assert RulesetRows.of(text).text() == text


@given(drawn(), drawn())
def test_rows_that_stay_are_the_same_objects(base: Ruleset, new: Ruleset) -> None:
    before = decoded(RulesetRows.of(rulesets.dumps(base)))
    after = decoded(RulesetRows.of(rulesets.dumps(new)), before)
    assert before.ruleset == base
    assert after.ruleset == new
    assert rulesets.dumps(after.ruleset) == rulesets.dumps(new)
    for name in SECTIONS:
        known = {id(row) for row in getattr(before.ruleset, name)}
        texts = set(map(codec.dumps, getattr(base, name)))
        for row in getattr(after.ruleset, name):
            assert (id(row) in known) == (codec.dumps(row) in texts)


@given(st.lists(drawn(), max_size=4), st.randoms(use_true_random=False))
def test_texts_of_rows_that_stay_are_those_of_the_whole_ruleset(
    given: list[Ruleset], rng: Random
) -> None:
    """Rulesets follow each other, each with rows of the one before in any order."""
    texts, before = RowTexts(), Ruleset(0, (), (), (), (), (), (), ())
    for one in given:
        mixed: dict[str, Any] = {
            name: (
                *rng.sample(rows := getattr(before, name), k=len(rows) // 2),
                *getattr(one, name),
            )
            for name in SECTIONS
        }
        after = replace(one, **mixed)
        text = texts.rows(after).text()
        assert text == rulesets.dumps(after)
        assert (
            applied(rulesets.dumps(before), difference(before.id, rulesets.dumps(before), text))
            == text
        )
        assert RulesetRows.of(text).is_of(text)
        assert rulesets.dumps(read_ruleset(text, after.id)) == text
        before = after


@given(drawn(), st.integers(0, 99))
def test_only_the_number_of_a_renumbered_ruleset_differs(one: Ruleset, epoch: int) -> None:
    text = rulesets.dumps(one)
    other = rulesets.renumbered(text, epoch)
    assert other == rulesets.dumps(replace(one, epoch=epoch))
    for known in (text, RulesetRows.of(text).text()):
        again = renumbered(known, epoch)
        rows = RulesetRows.of(again)
        assert (again, rows.text(), rows.is_of(again)) == (other, other, True)
    rows = RulesetRows.of(text)
    assert rows.is_renumbered(RulesetRows.of(other))
    revised = rulesets.dumps(replace(one, revision=one.revision + 1))
    assert not rows.is_renumbered(RulesetRows.of(revised))
    more = replace(one, queries=(*one.queries, POOL["queries"][0]))
    assert not rows.is_renumbered(RulesetRows.of(rulesets.dumps(more)))


def test_a_row_more_or_less_is_a_short_patch() -> None:
    base = rules(3, {f"q{n:02}": RS for n in range(40)})
    gone = replace(base, epoch=4, queries=base.queries[:7] + base.queries[8:])
    before, after = rulesets.dumps(base), rulesets.dumps(gone)
    there = difference(base.id, before, after)
    back = difference(gone.id, after, before)
    assert there.sections["queries"] == (patches.Edit(0, 7, ()), patches.Edit(8, 32, ()))
    (first, second) = back.sections["queries"]
    assert (first.start, first.count, len(first.rows)) == (0, 7, 1)
    assert (second.start, second.count, second.rows) == (7, 32, ())
    assert len(there.dumps()) < 1200 < len(after) / 10
    assert applied(before, there) == after
    assert applied(after, back) == before


def test_text_that_no_patch_yields_has_no_patch() -> None:
    base, new = (rulesets.dumps(rules(n, {"q": RS, f"r{n}": ST})) for n in (1, 2))
    with pytest.raises(RulesetError) as caught:
        difference(RulesetId(1), base, json.dumps(json.loads(new), indent=1))
    assert caught.value.code == "digest-differs"


def test_only_the_very_base_is_patched() -> None:
    base, new = (rulesets.dumps(rules(n, {"q": RS, f"r{n}": ST})) for n in (1, 2))
    patch = difference(RulesetId(1), base, new)

    def code(base: str, patch: patches.Patch) -> str:
        with pytest.raises(RulesetError) as caught:
            applied(base, patch)
        return caught.value.code

    assert code(rulesets.renumbered(base, 9), patch) == "base-differs"
    assert code("", patch) == "base-differs"
    assert code(base, replace(patch, digest="0" * 32)) == "digest-differs"
    text = patch.dumps()
    of_patch = replace(patch, base_digest=rulesets.digest(text))
    assert code(text, of_patch) == "patch-of-patch"
    for edit in (patches.Edit(-1, 1, ()), patches.Edit(0, 10**9, ()), patches.Edit(10**9, 1, ())):
        sections = {**patch.sections, "queries": (edit,)}
        assert code(base, replace(patch, sections=sections)) == "digest-differs"
    assert code(base, replace(patch, sections={})) == "digest-differs"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"patch": 2}, "unknown-version"),
        ({"patch": "1"}, "unknown-version"),
        ({"patch": None}, "unknown-version"),
        ({"base": "1"}, "bad-patch"),
        ({"base": []}, "bad-patch"),
        ({"digest": None}, "bad-patch"),
        ({"sections": []}, "bad-patch"),
        ({"sections": {"queries": [[0, 1]]}}, "bad-patch"),
        ({"scalars": 1}, "bad-patch"),
    ],
)
def test_a_malformed_patch_is_refused(change: dict[str, Any], code: str) -> None:
    base = rulesets.dumps(rules(1, {"q": RS}))
    document = json.loads(difference(RulesetId(1), base, base).dumps())
    with pytest.raises(RulesetError) as caught:
        patches.loads(json.dumps({**document, **change}))
    assert caught.value.code == code
    assert "one release" in caught.value.remedy or code == "bad-patch"


@pytest.mark.parametrize("text", ["", "[]", '{"base":', '{"base":1}'])
def test_what_is_no_patch_is_refused(text: str) -> None:
    with pytest.raises(RulesetError):
        patches.loads(text)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"rules":[]}', '{"epoch":1,"rules":{},"version":2}', '{"version":99}'],
)
def test_what_is_no_ruleset_is_refused(text: str) -> None:
    for read in (rulesets.loads, lambda given: read_ruleset(given, RulesetId(1))):
        with pytest.raises(RulesetError) as caught:
            read(text)
        assert caught.value.code in ("bad-ruleset", "unknown-version")


def test_a_row_that_is_malformed_is_named() -> None:
    document = rulesets.to_json(rules(1, {"q": RS}))
    for section, rows in (("queries", [1]), ("queries", [{"id": "q"}]), ("stores", [{"id": 1}])):
        with pytest.raises(RulesetError, match=section) as caught:
            decoded(RulesetRows.of(json.dumps({**document, section: rows})))
        assert caught.value.code == "bad-ruleset"


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_rulesets_of_other_versions_are_refused(version: object) -> None:
    text = json.dumps({**rulesets.to_json(rules(1, {"q": RS})), "version": version})
    for read in (rulesets.loads, lambda given: read_ruleset(given, RulesetId(1))):
        with pytest.raises(RulesetError, match="not supported") as caught:
            read(text)
        assert (caught.value.code, bool(caught.value.remedy)) == ("unknown-version", True)


def test_blanks_another_order_and_unknown_fields_are_passed_over() -> None:
    document = {"later": [1], "latest": 2, **rulesets.to_json(rules(1, {"q": RS}))}
    text = json.dumps(document, indent=1)
    assert (
        decoded(RulesetRows.of(text)).ruleset
        == rulesets.loads(text)
        == rulesets.from_json(document)
    )
