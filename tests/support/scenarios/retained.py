"""Random scenarios in which streams are retained, and most queries are registered late.

Additions are drawn by a separate generator, so that the rest of a seed's scenario stays the same.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import yaml

from tests.support.oracles.oracle import Oracle
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import read_document, read_scenario
from tests.support.scenarios.latest import with_latest
from tests.support.scenarios.rows import RECORDED, Size
from tests.support.scenarios.ttls import with_ttls

_DURATIONS = ("5 minutes", "20 minutes", "1 hour")


def generate_retained(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed`` with retained streams."""
    generated, rng = generate(seed, folder, size), Random(f"retain {seed}")
    if rng.random() < 0.3:
        generated = with_ttls(generated, seed)
    if rng.random() < 0.3:
        generated = with_latest(generated, seed)
    oracle = Oracle(read_scenario(generated.path))
    batches = oracle.batches()
    oracle.close()
    document = read_document(generated.path)
    for stream in document["streams"].values():
        drawn = rng.random()
        if drawn < 0.6:
            stream["retain"] = "all"
        elif drawn < 0.8 and "event_time" in stream:
            stream["retain"] = rng.choice(_DURATIONS)
    for query in document["queries"].values():
        if rng.random() < 0.8:
            last = query.get("expire_at", batches) - 1
            query["register_at"] = rng.randint(min(1, last), max(last, 0))
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated
