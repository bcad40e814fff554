"""Tables of figures: data first, then Markdown for the report or Rich for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; its first ``texts`` columns are texts, the others figures.

    >>> print(Grid("t", ("name", "s"), (("a", "1"),)).markdown(), end="")
    | name | s |
    |---|---:|
    | a | 1 |
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1

    def markdown(self) -> str:
        """Return the table as Markdown, without the title."""
        rules = ["---"] * self.texts + ["---:"] * (len(self.head) - self.texts)
        lines = [
            f"| {' | '.join(self.head)} |",
            f"|{'|'.join(rules)}|",
            *(f"| {' | '.join(row)} |" for row in self.rows),
        ]
        return "\n".join(lines) + "\n"

    def rich(self) -> Table:
        """Return the table for a terminal."""
        table = Table(title=self.title)
        for number, column in enumerate(self.head):
            table.add_column(column, justify="left" if number < self.texts else "right")
        for row in self.rows:
            table.add_row(*row)
        return table


def spread(found: dict[str, float], digits: int = 0, unit: float = 1, sign: str = "") -> str:
    """Return the median as text, with the range if there is one.

    Args:
        unit: the figure that is shown as 1. sign: text after each figure.

    >>> spread({"median": 0.5, "low": 0.25, "high": 0.5}, unit=0.01, sign="%")
    '50% (25%–50%)'
    """
    median, low, high = (
        f"{found[name] / unit:,.{digits}f}{sign}" for name in ("median", "low", "high")
    )
    return median if low == high else f"{median} ({low}–{high})"


def percent(found: dict[str, float], digits: int = 1) -> str:
    """Return a spread of shares as percentages."""
    return spread(found, digits, unit=0.01, sign=" %")


def middle(found: dict[str, float], digits: int = 0, unit: float = 1) -> str:
    """Return the median as text, without the range."""
    return f"{found['median'] / unit:,.{digits}f}"


def columns(*groups: Sequence[str]) -> tuple[str, ...]:
    """Concatenate groups of columns to the head of a table."""
    return tuple(name for group in groups for name in group)
