"""Random scenarios in which queries are registered again later, when many of their tuples are
stored.

These queries are drawn by a separate generator, so that the rest of a seed's scenario stays the
same.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import yaml

from tests.support.oracles.oracle import Oracle
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import read_document, read_scenario
from tests.support.scenarios.rows import RECORDED, Size


def generate_with_past(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed``, with most queries registered again under another name."""
    generated, rng = generate(seed, folder, size), Random(f"past {seed}")
    oracle = Oracle(read_scenario(generated.path))
    batches = oracle.batches()
    oracle.close()
    document = read_document(generated.path)
    queries = document["queries"]
    for name in list(queries):
        if rng.random() < 0.3:
            continue
        again = {k: v for k, v in queries[name].items() if k != "expire_at"}
        if rng.random() < 0.7:
            queries[name].pop("expire_at", None)
        again["register_at"] = begin = rng.randrange(1, batches)
        if rng.random() < 0.3 and begin + 1 < batches:
            again["expire_at"] = rng.randrange(begin + 1, batches)
        queries[f"{name}p"] = again
        generated.queries[f"{name}p"] = generated.queries[name]
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated
