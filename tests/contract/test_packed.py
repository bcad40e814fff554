"""Tests of compressed long texts."""

from __future__ import annotations

import pytest

from anabranch_contract.packed import pack, unpack


@pytest.mark.parametrize("text", ["", "{}", '{"ü": 1}' * 9_000, "x" * 65_535, "x" * 65_536])
def test_what_was_packed_is_unpacked(text: str) -> None:
    assert unpack(pack(text)) == text
    assert len(pack(text)) <= len(text)


def test_a_damaged_text_is_refused() -> None:
    kept = pack("x" * 100_000)
    for damaged in (kept[:-8], "zlib:AAAA", "zlib:äöü", kept[:9] + "!" + kept[10:]):
        with pytest.raises(ValueError, match=r"."):
            unpack(damaged)
