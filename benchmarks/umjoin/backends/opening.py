"""Opening of a state backend by the name of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from anabranch_runtime.errors import StateError
from anabranch_runtime.index import kernels
from benchmarks.umjoin.backends import counting, hash_chains
from benchmarks.umjoin.backends.interface import Backend, BackendKind, TableSpec
from benchmarks.umjoin.backends.lsm import LsmBackend
from benchmarks.umjoin.backends.memory import MemoryBackend

#: Minimum memory limit of a backend in bytes.
LEAST_MEMORY = 1 << 20


def open_backend(
    folder: Path,
    tables: Mapping[str, TableSpec],
    memory_limit: int,
    kind: BackendKind | str = BackendKind.LSM,
) -> Backend:
    """Open the backend in ``folder``, which is created if necessary.

    Args:
        folder: folder that only this process may use.
        tables: definitions of the tables; always the same for one folder.
        memory_limit: bytes of anonymous memory that the state may use; each backend describes its
            use.
        kind: kind of backend.

    Raises:
        StateError: ``unknown-backend``, ``missing-extra``, ``bad-memory-limit``; ``state-in-use``;
            ``other-backend``, ``other-tables``, ``unknown-version``; ``damaged-...``,
            ``missing-pack``; ``disk-full``, ``not-writable``.
    """
    if kind not in BackendKind.__members__.values():
        raise StateError(
            "unknown-backend",
            f"there is no state backend {str(kind)!r}",
            field="kind",
            remedy="use one of " + ", ".join(BackendKind),
        )
    if memory_limit < LEAST_MEMORY:
        raise StateError(
            "bad-memory-limit",
            f"{memory_limit:,} bytes are too few for a state backend",
            field="memory_limit",
            remedy=f"allow {LEAST_MEMORY:,} bytes at least",
        )
    match BackendKind(kind):
        case BackendKind.MEMORY:
            return MemoryBackend(folder, tables, memory_limit)
        case BackendKind.LSM:
            return LsmBackend(folder, tables, memory_limit)
        case BackendKind.ROCKSDB:
            # Imported here, since it needs an extra that most installations lack.
            try:
                from benchmarks.umjoin.backends.rocks import RocksBackend
            except ModuleNotFoundError as cause:
                if cause.name != "rocksdict":
                    raise
                raise StateError(
                    "missing-extra",
                    "the backend 'rocksdb' needs the package rocksdict, which is not installed",
                    field="kind",
                    remedy="pip install 'anabranch[bench]', or use the backend 'lsm'",
                ) from cause
            return RocksBackend(folder, tables, memory_limit)


def warm() -> None:
    """Compile the kernels of the runtime and of backends, or load them from the cache."""
    kernels.warm()
    hash_chains.warm()
    counting.warm()
