"""Entries of the ledger of rations beside the results (``semantics.md``, "Rations")."""

from __future__ import annotations

from pathlib import Path

from anabranch_contract import codec
from anabranch_contract.plans.rations import PaidBatches, RationedBatches
from anabranch_runtime.sinks.completeness import HOME, Completeness
from anabranch_runtime.sinks.ledger import NewEntries


def made_good(results: Path) -> set[tuple[int, str, str]]:
    """Return (batch, query, alias) of every goal whose debt was paid."""
    return {
        (batch, str(query), alias)
        for one in read_paid(results)
        for query, alias in one.goals
        for batch in range(one.first, one.last + 1)
    }


def read_rations(results: Path) -> tuple[RationedBatches, ...]:
    """Read the ledger's rations, oldest first."""
    return tuple(NewEntries(results).rationed())


def read_paid(results: Path) -> tuple[PaidBatches, ...]:
    """Read all entries of paid debt, in the order of payment."""
    return tuple(NewEntries(results).paid())


def read_completeness(results: Path, query: str) -> Completeness | None:
    """Read the completeness of a query; None: nothing of it was ever withheld."""
    path = results / HOME / f"{query}.json"
    return codec.loads(path.read_bytes(), Completeness) if path.exists() else None
