"""Random scenarios in which streams keep the latest row per key, with changes of this while queries
run; in some of them streams have ttls as well.

This is drawn by a separate generator, so that the rest of a seed's scenario stays the same.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.support.oracles.oracle import Oracle
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import read_document, read_scenario
from tests.support.scenarios.rows import RECORDED, Size
from tests.support.scenarios.ttls import with_ttls


def generate_with_latest(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed`` with streams that keep the latest row per key."""
    generated = generate(seed, folder, size)
    if Random(f"latest or ttl {seed}").random() < 0.3:
        generated = with_ttls(generated, seed)
    return with_latest(generated, seed)


def with_latest(generated: Generated, seed: int) -> Generated:
    """Return the scenario with streams that keep the latest row of some key for some time."""
    rng = Random(f"latest {seed}")
    oracle = Oracle(read_scenario(generated.path))
    batches = oracle.batches()
    oracle.close()
    document = read_document(generated.path)
    for stream in document["streams"].values():
        if "event_time" not in stream or rng.random() < 0.2:
            continue
        keys = keys_of(generated.path.parent / stream["path"])
        stream["retention"] = _merged(stream.get("retention"), _calls(rng, keys, batches))
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated


def keys_of(path: Path) -> list[str]:
    """Return the columns that a key may have; few of them have unique values."""
    schema = pq.read_schema(path)
    wide = [f.name for f in schema if f.name not in ("id", "ts", "amount")]
    return [c for c in wide if not pa.types.is_floating(schema.field(c).type)]


def _calls(rng: Random, keys: list[str], batches: int) -> dict[int, list[str]]:
    """Return batch -> key that is set before it; empty: none is kept from then on."""
    calls = {} if rng.random() < 0.4 else {0: _key(rng, keys)}
    for batch in sorted(rng.sample(range(1, batches), min(batches - 1, rng.choice((0, 0, 1, 2))))):
        calls[batch] = [] if calls and rng.random() < 0.4 else _key(rng, keys)
    return calls or {0: _key(rng, keys)}


def _key(rng: Random, keys: list[str]) -> list[str]:
    return rng.sample(keys, rng.choice((1, 1, 1, 2)))


def _merged(given: Any, latest: dict[int, list[str]]) -> dict[int, Any]:
    """Combine both sets of calls; each call states everything that holds from then on."""
    ttls = {} if given is None else {0: given} if "ttl" in given else given
    found: dict[int, Any] = {}
    ttl: Any = None
    key: list[str] = []
    for batch in sorted({*ttls, *latest}):
        ttl = ttls.get(batch, ttl) if batch in ttls else ttl
        key = latest.get(batch, key)
        found[batch] = {**(ttl or {}), **({"latest": key} if key else {})} or None
    return found
