"""Permissions of registrations, passed as flags to service and runtime."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: Names inside a pipeline's folder that registrations can't access.
_RESERVED = (
    *("state", "redis", "logs", "admin.token", "service.port"),
    *("up.lock", "up.json", "up.tmp"),
)


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permissions of registrations, in addition to the defaults.

    Attributes:
        paths: folders in which files may be read and written.
        hosts: permitted servers: ``host``, ``host:port``, ``*.suffix`` or ``*``.
        formats: permitted formats of sources and sinks.
        functions: modules of users' functions, and folders of modules.
    """

    paths: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    functions: tuple[Path, ...] = ()

    def arguments(self, home: Path, results: Path) -> list[str]:
        """The flags for service and runtime; ``home`` and ``results`` are the pipeline's folders.

        Registrations may read the pipeline's folder, except for the pipeline's internal files. They
        may read, but not write, its results.
        """
        return [
            *_flags("--allow-path", (home, *self.paths)),
            *_flags("--allow-host", self.hosts),
            *_flags("--allow-format", self.formats),
            *_flags("--functions", self.functions),
            *_flags("--reserve-path", (home / name for name in _RESERVED)),
            *_flags("--read-only-path", (results,)),
        ]


def _flags(name: str, values: Iterable[object]) -> list[str]:
    return [f"{name}={value}" for value in values]
