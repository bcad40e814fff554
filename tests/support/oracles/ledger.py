"""What the ledger beside results says of them (``semantics.md``, "Rations")."""

from __future__ import annotations

from pathlib import Path

from anabranch_runtime.sinks.ledger import read_paid


def made_good(results: Path) -> set[tuple[int, str, str]]:
    """(batch, query, alias) of the goals of which nothing is owed any more."""
    return {
        (batch, str(query), alias)
        for one in read_paid(results)
        for query, alias in one.goals
        for batch in range(one.first, one.last + 1)
    }
