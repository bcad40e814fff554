"""Entries of the ledger beside the results (``semantics.md``, "Rations")."""

from __future__ import annotations

from pathlib import Path

from anabranch_contract import codec
from anabranch_contract.plans.rations import PaidBatches, RationedBatches
from anabranch_runtime.sinks.completeness import HOME, Completeness
from anabranch_runtime.sinks.ledger import NewEntries


def made_good(results: Path) -> set[tuple[int, str, str]]:
    """(batch, query, alias) of every goal with a paid debt."""
    return {
        (batch, str(query), alias)
        for one in read_paid(results)
        for query, alias in one.goals
        for batch in range(one.first, one.last + 1)
    }


def read_rations(results: Path) -> tuple[RationedBatches, ...]:
    """The ledger, oldest first."""
    return tuple(NewEntries(results).rationed())


def read_paid(results: Path) -> tuple[PaidBatches, ...]:
    """All entries of paid debt, in the order of payment."""
    return tuple(NewEntries(results).paid())


def read_completeness(results: Path, query: str) -> Completeness | None:
    """Completeness of a query; None: nothing of it was ever withheld."""
    path = results / HOME / f"{query}.json"
    return codec.loads(path.read_bytes(), Completeness) if path.exists() else None
