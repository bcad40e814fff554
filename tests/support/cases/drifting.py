"""Four streams joined by one skewed key within a window; a drift changes which joins
have matches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.worlds.service import Service

ROWS = 10_000
_MINUTE, _START = 60_000_000, 1_750_000_000_000_000
#: End of the range of most keys (1 and 2 are frequent), and offset of keys without matches.
_KEYS, _ELSEWHERE = 6_000, 100_000
#: Seconds of the window in either direction.
_REACH = 30
QUERY = (
    "SELECT r.n AS rn, s.n AS sn, t.n AS tn, u.n AS un FROM r, s, t, u "
    "WHERE r.k = s.k AND r.k = t.k AND r.k = u.k"
) + "".join(
    f" AND {x}.ts BETWEEN r.ts - INTERVAL '{_REACH}' SECOND AND r.ts + INTERVAL '{_REACH}' SECOND"
    for x in "stu"
)


def register(service: Service) -> None:
    """Register the streams and the query."""
    for name in "rstu":
        columns = {"k": "bigint", "n": "bigint", "ts": "timestamp"}
        service.post("/v1/streams", {"name": name, "columns": columns, "event_time": "ts"})
    service.post("/v1/queries", {"id": "q", "sql": QUERY})


def batch(number: int, *, drifted: bool) -> dict[str, dict[str, Any]]:
    """Return stream -> its columns of a batch. ``s`` and ``t`` have a frequent value each, ``r``
    has both. 40 % of ``u`` have no match; after the drift 90 % of ``t`` have none, and all of ``u``
    have one.
    """
    draw = np.random.default_rng(number)
    found = {}
    for name in "rstu":
        keys, hot = draw.integers(10, _KEYS, ROWS), draw.random(ROWS)
        if name == "s":
            keys = np.where(hot < 0.1, 1, keys)
        elif name == "t":
            keys = np.where(hot < 0.1, 2, keys)
        elif name == "r":
            keys = np.where(hot < 0.03, 1, np.where(hot < 0.06, 2, keys))
        if name == ("t" if drifted else "u"):
            away = draw.random(ROWS) < (0.9 if drifted else 0.4)
            keys = np.where(away & (keys > 2), keys + _ELSEWHERE, keys)
        times = _START + number * _MINUTE + draw.integers(0, _MINUTE, ROWS)
        found[name] = {
            "k": keys,
            "n": np.arange(ROWS) + number * ROWS,
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    return found
