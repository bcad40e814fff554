"""A backend's folder: its lock, its description, and errors of the disk.

``backend.json`` has the kind of backend that wrote the folder, and the definitions of its tables;
``lock`` is locked by the process that has the folder open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.disk_errors import diagnosed
from anabranch_runtime.storage.documents import Kind, read_document, write_document
from anabranch_runtime.storage.pipeline_lock import exclusive
from benchmarks.umjoin.backends.interface import BackendKind, TableSpec

KIND = Kind("backend", "backend")
_ANEW = "give this operator a folder of its own, or remove what is in this one"


class Home:
    """A backend's folder, locked by this process until :meth:`leave`."""

    def __init__(self, folder: Path, kind: BackendKind, tables: Mapping[str, TableSpec]) -> None:
        """Raises:
        StateError: ``state-in-use``, ``other-backend``, ``other-tables``, ``damaged-backend``,
            ``unknown-version``, ``disk-full`` or ``not-writable``.
        """
        self.folder = folder
        with ExitStack() as held, diagnosing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(folder))
            _identify(folder, kind, tables)
            self._held = held.pop_all()

    def leave(self) -> None:
        """Unlock the folder."""
        self._held.close()

    def disk(self) -> int:
        """Return the bytes of all files, although merges rename and remove some meanwhile."""
        found = 0
        for path in self.folder.rglob("*"):
            with suppress(FileNotFoundError):
                found += path.stat().st_size if path.is_file() else 0
        return found


@contextmanager
def diagnosing(folder: Path) -> Iterator[None]:
    """Context that converts errors of a full or write-protected disk into clear ones."""
    try:
        yield
    except Exception as error:
        found = diagnosed(error, [folder])
        if found is error:
            raise
        raise found from error


def later(last: int, batch: int) -> None:
    """Refuse a batch whose number is not greater than ``last``.

    Raises:
        StateError: ``batch-order``.
    """
    if batch <= last:
        raise StateError(
            "batch-order",
            f"batch {batch} can't be committed after batch {last}",
            field="batch",
            remedy="number batches upwards, and leave out those that the state has",
        )


def _identify(folder: Path, kind: BackendKind, tables: Mapping[str, TableSpec]) -> None:
    path = folder / "backend.json"
    wanted: dict[str, Any] = {
        "kind": str(kind),
        "tables": {name: _told(t) for name, t in tables.items()},
    }
    if not path.exists():
        # A process that was killed while it created the folder may have left a partial file.
        if any(p.name not in ("lock", path.name + ".partial") for p in folder.iterdir()):
            raise StateError(
                "other-backend", f"{folder} is not empty and no state backend's", remedy=_ANEW
            )
        write_document(path, KIND, wanted)
        return
    found = read_document(path, KIND)
    if found["kind"] != kind:
        raise StateError(
            "other-backend",
            f"{folder} was written by the backend {found['kind']!r}, not {str(kind)!r}",
            remedy=_ANEW,
        )
    for name in sorted(found["tables"].keys() | wanted["tables"].keys()):
        if found["tables"].get(name) != wanted["tables"].get(name):
            raise StateError(
                "other-tables",
                f"{folder} has other tables than this operator: {name!r} is not the same",
                field=name,
                remedy=_ANEW,
            )


def _told(spec: TableSpec) -> dict[str, Any]:
    return {
        "columns": [[f.name, str(f.type)] for f in spec.columns],
        "indexes": [index.name for index in spec.indexes],
        "timed": spec.timed,
    }
