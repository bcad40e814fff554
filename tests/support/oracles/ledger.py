"""Entries of the ledger beside the results (``semantics.md``, "Rations")."""

from __future__ import annotations

from pathlib import Path

from anabranch_runtime.sinks.ledger import read_paid


def made_good(results: Path) -> set[tuple[int, str, str]]:
    """(batch, query, alias) of every goal with a paid debt."""
    return {
        (batch, str(query), alias)
        for one in read_paid(results)
        for query, alias in one.goals
        for batch in range(one.first, one.last + 1)
    }
