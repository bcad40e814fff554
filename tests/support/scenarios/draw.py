"""Random scenarios by seed: Parquet files, ``SCENARIO.yaml``, and the oracle's queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.support.cases.syntaxes import respell
from tests.support.oracles.oracle import Oracle, OracleQuery
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.queries import Draft, World
from tests.support.scenarios.rows import RECORDED, Size, make_tables


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated scenario on disk."""

    folder: Path
    queries: dict[str, OracleQuery]

    @property
    def path(self) -> Path:
        """Path of the scenario file."""
        return self.folder / "SCENARIO.yaml"


def generate_respelled(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate a scenario with most of its queries in unusual syntax."""
    return generate(seed, folder, replace(size, respelled=0.8))


def generate_theta(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate a scenario in which half of all joins have no equality."""
    return generate(seed, folder, replace(size, theta=0.5))


def generate(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Write the scenario of ``seed`` into ``folder``; equal seeds give equal scenarios."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    batches = int(rng.integers(*size.batches))
    brief = size.brief > 0 and bool(rng.random() < size.brief)
    tables = make_tables(rng, batches, size, brief=brief)
    for table in tables:
        table.write(folder)
    doc: dict[str, Any] = {
        "streams": {t.name: t.entry() for t in tables},
        "queries": {},
        "epochs": {"every": int(rng.integers(1 if size.cuts else 2, 5))},
        "optimizer": _optimizer(rng, batches),
        # With the objective in seconds, plans of so few rows have no intermediate results.
        "objective": "tuples",
        "parallelism": int(rng.integers(1, 5)),
    }
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(doc, sort_keys=False))
    drafts: list[Draft] = []
    oracle = Oracle(read_scenario(path))
    try:
        columns = {t.name: [str(c) for c in t.data.column_names] for t in tables}
        world = World(tables, size.largest, rng, brief=brief, theta=size.theta)
        for number in range(int(rng.integers(*size.queries))):
            # Some queries are registered again under another name.
            again = drafts and rng.random() < 0.12
            draft = drafts[int(rng.integers(number))] if again else world.query(oracle)
            call = _call(draft, number, batches, rng)
            if size.respelled and rng.random() < size.respelled:
                call |= _respelled(draft, columns, rng)
            doc["queries"][f"q{number}"] = call
            drafts.append(draft)
    finally:
        oracle.close()
    path.write_text(yaml.safe_dump(doc, sort_keys=False, width=100))
    return Generated(folder, {f"q{n}": draft.oracle() for n, draft in enumerate(drafts)})


def _optimizer(rng: np.random.Generator, batches: int) -> str | dict[int, str]:
    names = ["clash", "shared", "individual"]
    if rng.random() < 0.45:
        return str(rng.choice(names, p=[0.7, 0.15, 0.15]))
    switches = sorted(rng.choice(np.arange(1, batches), size=2, replace=False).tolist())
    order = [str(x) for x in rng.permutation(names)]
    return {0: order[0], switches[0]: order[1], switches[1]: order[2]}


def _respelled(
    draft: Draft, columns: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> dict[str, Any]:
    """Return the query in unusual syntax; its window uses the aliases of the new statement."""
    found = respell(draft, columns, rng)
    if not isinstance(draft.window, dict):
        return {"sql": found.sql}
    window = {found.aliases[alias]: length for alias, length in draft.window.items()}
    return {"sql": found.sql, "window": window}


def _call(draft: Draft, number: int, batches: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return the query's entry in the scenario file, with its first and last batch."""
    doc: dict[str, Any] = {"sql": draft.spark(commas=bool(rng.random() < 0.15))}
    if draft.window is not None:
        doc["window"] = draft.window
    early = rng.random() < (0.8 if number == 0 else 0.45)
    doc["register_at"] = 0 if early else int(rng.integers(1, batches))
    if rng.random() < 0.3 and doc["register_at"] + 1 < batches:
        doc["expire_at"] = int(rng.integers(doc["register_at"] + 1, batches))
    return doc
