"""Compare kept outer joins whose partners are limited by a stream's ttl with DuckDB."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.sql.files import Block
from tests.sql.run import Written
from tests.support.combined.streams import MINUTE, Kind, RandomStream
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.redis import redis_url

_TTL = 7 * MINUTE
#: A tuple of ``d`` joins tuples that are at most so much later.
_WITHIN = "{}.ts <= d.ts + INTERVAL 7 MINUTE"
_STATEMENTS = [
    "SELECT d.k, f.w FROM d LEFT JOIN f ON f.k = d.k{f}",
    "SELECT d.k, d.v FROM d LEFT JOIN f ON f.k = d.k{f}",
    "SELECT d.k, f.w FROM d FULL JOIN f ON f.k = d.k{f}",
    "SELECT f.k, d.v FROM f LEFT JOIN d ON f.k = d.k{f}",
    "SELECT d.k FROM d ANTI JOIN f ON f.k = d.k{f}",
    "SELECT d.k, h.k AS x, f.w FROM d LEFT JOIN f ON f.k = d.k{f} LEFT JOIN h ON h.v = f.w{h}",
    "SELECT f.k, count(*) AS n FROM f LEFT JOIN d ON f.k = d.k{f} LEFT JOIN h ON h.k = d.k{h} "
    "GROUP BY f.k",
]


def _drawn(folder: Path, rng: Random) -> dict[str, RandomStream]:
    found: dict[str, RandomStream] = {}
    for name in "dfh":
        (folder / name).mkdir(parents=True)
        kind, ttl = Kind.CHANGES if name == "h" else Kind.INSERTS, _TTL if name == "d" else None
        found[name] = RandomStream(name, kind, folder / name, sizes=(0, 6, 12), ttl=ttl)
    return found


class _Run(Written):
    def __init__(self, folder: Path, redis: str, seed: int, blocks: list[Block]) -> None:
        self.blocks, self.rows = blocks, {}
        super(Written, self).__init__(folder, redis, seed, drawn=_drawn)


@pytest.mark.parametrize("seed", mostly_slow(range(20)))
def test_equal_left_rows_of_different_times_have_different_partners(
    tmp_path: Path, seed: int
) -> None:
    conditions = {name: f" AND {_WITHIN.format(name)}" for name in "fh"}
    blocks = [
        Block("query", text.format(f="", h=""), text.format(**conditions)) for text in _STATEMENTS
    ]
    with redis_url() as url:
        _Run(tmp_path, url, seed, blocks).play()
