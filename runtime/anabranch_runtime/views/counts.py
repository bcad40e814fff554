"""Rows that outer joins have given or left out, and that views have now, counted once each.

What Spark repeats is made again. So a count is kept together with the version that it is as of and
with the count before that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from anabranch_contract import codec
from anabranch_contract.protocol.activations import LeftRows
from anabranch_runtime.storage.documents import write_durably


@dataclass(frozen=True, slots=True)
class _Left:
    """Attributes: a version, and the left rows ``before`` it and in ``total``."""

    version: int
    before: LeftRows
    total: LeftRows


#: Folders below the results with a file for each query: counts of its sink's rows, and of rows
#: written to it. Unlike the joined rows they stay when the query has ended. No query can have a
#: name that begins with a dot.
_SHOWN, _WRITTEN, _LEFT = ".shown", ".written", ".left"


def shown_file(results: Path, query: str) -> Path:
    """The count of rows that an outer join has given to its sink, or that a view has."""
    return results / _SHOWN / f"{query}.json"


def written_file(results: Path, query: str) -> Path:
    """The count of rows that a view (changes) or an outer join has written to its sink."""
    return results / _WRITTEN / f"{query}.json"


def add_left(results: Path, query: str, version: int, rows: LeftRows) -> LeftRows:
    """Add ``rows`` of ``version`` to an outer join's left rows, once however often it is made;
    return the total.
    """
    file = results / _LEFT / f"{query}.json"
    known = codec.loads(file.read_bytes(), _Left) if file.exists() else None
    before = LeftRows(rows.kind)
    if known is not None:
        before = known.before if known.version == version else known.total
    total = before.plus(rows)
    if known is None or total != known.total:
        file.parent.mkdir(exist_ok=True)
        write_durably(file, codec.dumps(_Left(version, before, total)))
    return total


def all_left(results: Path) -> dict[str, LeftRows]:
    """Outer join -> its left rows, of all that have ever given any or left any out."""
    files = (results / _LEFT).glob("*.json")
    return {file.stem: codec.loads(file.read_bytes(), _Left).total for file in files}


def add(file: Path, version: int, rows: int) -> int:
    """How many there are up to ``version``, which adds ``rows``; a version that is made again
    counts once.
    """
    last = before = 0
    if file.exists():
        known = json.loads(file.read_text())
        last = known["total"]
        before = known["before"] if known["version"] == version else last
    total = before + rows
    if total != last:
        _write(file, version, before, total)
    return total


def put(file: Path, version: int, rows: int) -> int:
    """The same for ``rows`` in place of all before."""
    if so_far(file) != rows:
        _write(file, version, rows, rows)
    return rows


def so_far(file: Path) -> int:
    """How many there have been so far."""
    return int(json.loads(file.read_text())["total"]) if file.exists() else 0


def all_written(results: Path) -> dict[str, tuple[int, int]]:
    """Query -> its last version that has written something, and how many rows all have."""
    found = (
        (file.stem, json.loads(file.read_text())) for file in (results / _WRITTEN).glob("*.json")
    )
    return {name: (known["version"], known["total"]) for name, known in found}


def all_shown(results: Path) -> dict[str, int]:
    """Query -> what its sink holds, of all that have ever been."""
    return {file.stem: so_far(file) for file in (results / _SHOWN).glob("*.json")}


def _write(file: Path, version: int, before: int, total: int) -> None:
    file.parent.mkdir(exist_ok=True)
    write_durably(file, json.dumps({"version": version, "before": before, "total": total}))
