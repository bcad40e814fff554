"""Tests of checksummed documents on disk: any damage is found, by each way to read one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.documents import (
    Kind,
    checksum,
    read_document,
    read_exactly,
    read_text,
    write_document,
)

KIND = Kind("note", "note", 2)
BODY = {"names": ["é", "}"], "share": 0.12345678901234567, "batch": 7}


def exactly(path: Path, kind: Kind) -> bytes:
    """Read the document by the checksum in it."""
    return read_exactly(path, kind, checksum(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_document(tmp_path / "note.json", KIND, BODY)
    return tmp_path / "note.json"


@pytest.mark.parametrize("read", [read_document, read_text, exactly])
def test_any_damage_is_found(read: Callable[[Path, Kind], Any], path: Path) -> None:
    """Test every flipped bit, every shorter length, and additional bytes."""
    whole = path.read_bytes()
    read(path, KIND)
    damaged = [whole[:end] for end in range(len(whole))]
    damaged += [whole + more for more in (b"}", b" ", b"\n", b"\0", whole)]
    for at in range(8 * len(whole)):
        content = bytearray(whole)
        content[at // 8] ^= 1 << at % 8
        damaged.append(bytes(content))
    for changed in damaged:
        path.write_bytes(changed)
        with pytest.raises((StateError, ValueError)):
            read(path, KIND)


def test_another_version_is_named(path: Path) -> None:
    for read in (read_document, read_text):
        with pytest.raises(StateError, match="has version 2, not 3") as caught:
            read(path, Kind("note", "note", 3))
        assert caught.value.code == "unknown-version"
