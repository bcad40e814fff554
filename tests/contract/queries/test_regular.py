"""Tests of the conversion of Java's regular expressions to a linear-time engine."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.regular import rewritten, rewritten_replacement


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", "groups are"),
        ("(?<!a)b", "groups are"),
        ("(?>a)b", "groups are"),
        (r"(a)\1", r"\1 is not supported"),
        (r"\k<n>", r"\k is not supported"),
        ("a++", "possessive"),
        ("a{2,3}+", "possessive"),
        ("a{1001}", "more than 1000"),
        ("a{x}", "number of repetitions"),
        ("[a&&[b]]", "in a class"),
        ("[[a]b]", "in a class"),
        ("[]a]", "begins a class"),
        ("[a", "not closed"),
        ("(a", "no regular expression"),
        ("a)", "no regular expression"),
        ("*a", "no regular expression"),
        ("a\\", "ends in a backslash"),
        ("(?m)^a", "flags"),
        ("a(?i)b", "groups are"),
        (r"\Qa\E", r"\Q is not supported"),
        (r"\u12", "hexadecimal"),
        (r"\p{Alpha}", "general categories"),
        ("()" * 10, "more than 9 groups"),
    ],
)
def test_what_a_linear_engine_has_not_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        rewritten(pattern)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "groups", "takes_nothing"),
    [
        ("", 0, True),
        ("a*", 0, True),
        ("a+", 0, False),
        ("(a)(?:b)(?<n>c)", 2, False),
        (r"\(a\)", 0, False),
        ("[(]", 0, False),
        ("^$", 0, True),
        (r"\p{Lu}\x41", 0, False),
    ],
)
def test_groups_and_empty_matches_are_counted(
    pattern: str, groups: int, takes_nothing: bool
) -> None:
    found = rewritten(pattern)
    assert (found.groups, found.takes_nothing) == (groups, takes_nothing)


@given(st.text("ab(|)[]^$.*+?{1,2}\\dsSw-:<>=!nup ", max_size=12))
def test_whatever_is_accepted_compiles(pattern: str) -> None:
    try:
        found = rewritten(pattern)
    except ValueError:
        return
    text = pa.array(["ab 1", "", None, "\n"])
    for one in (found.text, found.condition):
        assert pc.match_substring_regex(text, one).null_count == 1


def test_replacements() -> None:
    assert rewritten_replacement(r"<$1>\$\\", 1) == r"<\1>$\\"
    for replacement, reason in (("$2", "has 1"), ("$x", "no group"), ("a\\", "backslash")):
        with pytest.raises(ValueError, match=reason):
            rewritten_replacement(replacement, 1)
