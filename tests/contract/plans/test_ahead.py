"""Tests of look-ahead filters that a probe may use: later probes common to all paths, by known
keys.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ahead import askable
from anabranch_contract.plans.ruleset import (
    KeyPart,
    Presence,
    Ruleset,
    StoreId,
    dumps,
    loads,
)
from anabranch_contract.queries.joins import AttrRef, Label
from anabranch_contract.queries.mirs import MirId
from tests.support.cases.by_hand import by_hand
from tests.support.cases.queries import chain

STAR = chain("S.a=A.a", "S.b=B.b", "S.c=C.c", id="star")
LINE = chain("S.a=A.a", "A.a=B.a", "B.b=C.b", id="line")


def asked(ruleset: Ruleset, edge: str) -> list[tuple[str, str]]:
    """The filters allowed before the probe of an edge: relation and known attribute of each."""
    found = {str(out): some for out, some in askable(ruleset).items()}
    return [
        (str(one.mir), f"{part.probe.label}.{part.probe.attribute}")
        for one in found.get(edge, ())
        for part in one.key
    ]


def test_keys_that_the_start_knows_are_asked_before_its_first_probe() -> None:
    found = by_hand({"star:S": ("A", "B", "C")}, STAR)
    assert asked(found, "S>A") == [("B", "S.b"), ("C", "S.c")]
    assert asked(found, "S>A>B") == [("C", "S.c")]
    assert asked(found, "S>A>B>C") == []
    # Probing from the other side, nothing is known except the one key.
    assert asked(found, "A>S") == []
    assert asked(found, "A>S>B") == [("C", "S.c")]


def test_keys_are_known_by_equality() -> None:
    found = by_hand({"line:S": ("A", "B", "C")}, LINE)
    # B.a equals A.a and so S.a; C is probed by B.b, which is known only with B.
    assert asked(found, "S>A") == [("B", "S.a")]
    assert asked(found, "S>A>B") == []


def test_nothing_is_asked_that_some_end_does_not_lie_behind() -> None:
    short = chain("S.a=A.a", id="short")
    found = by_hand({"star:S": ("A", "B", "C"), "short:S": ("A",)}, STAR, short)
    assert asked(found, "S>A") == []
    assert asked(found, "S>A>B") == [("C", "S.c")]


def test_what_all_branches_look_for_is_asked_before_they_part() -> None:
    other = chain("S.a=A.a", "S.c=C.c", "C.d=D.d", id="other")
    found = by_hand({"star:S": ("A", "B", "C"), "other:S": ("A", "C", "D")}, STAR, other)
    assert asked(found, "S>A") == [("C", "S.c")]


def test_documents_keep_what_is_asked() -> None:
    plain = by_hand({"star:S": ("A", "B", "C")}, STAR)
    ahead = askable(plain)
    made = replace(
        plain,
        probe_rules=tuple(replace(r, ahead=ahead.get(r.out, ())) for r in plain.probe_rules),
    )
    made.validate()
    assert loads(dumps(made)) == made != plain
    assert askable(made) == ahead


@pytest.mark.parametrize(("store", "label"), [("nowhere", "S"), ("C", "B"), ("C", None)])
def test_what_is_not_there_is_refused(store: str, label: str | None) -> None:
    """An unknown store, a key that is not known yet, and no key at all."""
    plain = by_hand({"star:S": ("A", "B", "C")}, STAR)
    first = next(r for r in plain.probe_rules if r.out == "S>A")
    copy = next((s.id for s in plain.stores if s.mir == store), StoreId(store))
    part = KeyPart(AttrRef(Label(label or ""), "c"), AttrRef(Label("C"), "c"), "bigint")
    wrong = Presence(MirId("C"), copy, (part,) if label else ())
    others = tuple(r for r in plain.probe_rules if r is not first)
    broken = replace(plain, probe_rules=(*others, replace(first, ahead=(wrong,))))
    with pytest.raises(RulesetError):
        broken.validate()
