"""Counts of rows that outer joins have emitted or left undecided, and of views' present rows.

Spark may repeat a version (the result of one micro-batch). So a count is stored with its version
and the preceding count, and a repeated version is counted once.
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
    """Counts of an outer join's left rows ``before`` a version, and in ``total`` with it."""

    version: int
    before: LeftRows
    total: LeftRows


#: Folders with a file per query below the results: number of present rows, of written rows, and
#: counts of left rows. They outlive the query.
_SHOWN, _WRITTEN, _LEFT = ".shown", ".written", ".left"


def shown_file(results: Path, query: str) -> Path:
    """Return the file with the number of rows that a view has, or an outer join has emitted."""
    return results / _SHOWN / f"{query}.json"


def written_file(results: Path, query: str) -> Path:
    """Return the file with the count of rows (a view's changes) written to the query's sink."""
    return results / _WRITTEN / f"{query}.json"


def add_left(results: Path, query: str, version: int, rows: LeftRows) -> LeftRows:
    """Add ``rows`` of ``version`` to an outer join's counts of left rows, once even if the version
    is repeated; return the total.
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
    """Return, by query, the counts of left rows (emitted or not) of every outer join."""
    files = (results / _LEFT).glob("*.json")
    return {file.stem: codec.loads(file.read_bytes(), _Left).total for file in files}


def add(file: Path, version: int, rows: int) -> int:
    """Add ``rows`` of ``version`` (once, even if repeated) to the count in ``file``; return it."""
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
    """Replace the count in ``file`` by ``rows`` as of ``version``; return it."""
    if so_far(file) != rows:
        _write(file, version, rows, rows)
    return rows


def so_far(file: Path) -> int:
    """Return the count in ``file``."""
    return int(json.loads(file.read_text())["total"]) if file.exists() else 0


def all_written(results: Path) -> dict[str, tuple[int, int]]:
    """Return, by query, the last version that wrote rows, and the number of rows written so far."""
    found = (
        (file.stem, json.loads(file.read_text())) for file in (results / _WRITTEN).glob("*.json")
    )
    return {name: (known["version"], known["total"]) for name, known in found}


def all_shown(results: Path) -> dict[str, int]:
    """Return the number of present rows by query, including ended queries."""
    return {file.stem: so_far(file) for file in (results / _SHOWN).glob("*.json")}


def _write(file: Path, version: int, before: int, total: int) -> None:
    file.parent.mkdir(exist_ok=True)
    write_durably(file, json.dumps({"version": version, "before": before, "total": total}))
