"""Figures with their limits, and what the newest measurements say about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.report.grids import Grid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with its limit; ``least``: whether it has to be at least that."""

    what: str
    figure: float
    limit: float
    least: bool
    digits: int = 2
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the figure keeps the limit."""
        return self.figure >= self.limit if self.least else self.figure <= self.limit

    def row(self) -> tuple[str, str, str, str]:
        """For a table."""
        sign = "≥" if self.least else "≤"
        return (
            self.what,
            f"{sign} {self.limit:,.10g}{self.unit}",
            f"{self.figure:,.{self.digits}f}{self.unit}",
            "yes" if self.met else "no",
        )


def table(
    readers: Mapping[str, Callable[[dict[str, Any]], Iterator[Target]]],
    newest: Mapping[str, dict[str, Any]],
) -> Grid:
    """Every target that there are figures for.

    Args:
        readers: part -> what is wanted of it, by its line.
        newest: part -> its newest line.
    """
    found = [
        target for part, read in readers.items() if part in newest for target in read(newest[part])
    ]
    rows = tuple(target.row() for target in found)
    return Grid("targets", ("target", "wanted", "found (median)", "met"), rows)
