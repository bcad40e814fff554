"""Generated data of the example iot: devices at sites, their readings, alarms and repairs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.events import MINUTE, cents, moments, stream

_SITES = np.array(["Bergen", "Lyon", "Turin", "Ulm"])


def tables(seed: int) -> dict[str, pa.Table]:
    """Return stream → its rows in the order of arrival."""
    rng = np.random.default_rng(seed)
    most = rng.integers(60, 80, 50)
    readings, device = moments(rng, 3000), rng.integers(0, 50, 3000)
    celsius = np.rint(100 * rng.normal(58, 9, 3000))
    hot = np.flatnonzero((celsius > 100 * most[device]) & (rng.random(3000) < 0.6))
    alarms = readings[hot] + rng.integers(1, 10, len(hot)) * MINUTE
    repaired = np.flatnonzero(rng.random(len(hot)) < 0.7)
    return {
        "devices": pa.table(
            {"device": np.arange(50), "site": _SITES[np.arange(50) % 4], "most": cents(100 * most)}
        ),
        "readings": stream(
            rng,
            {"device": device, "celsius": cents(celsius)},
            readings,
            {"device": -1, "celsius": 0},
        ),
        "alarms": stream(
            rng,
            {"device": device[hot], "code": rng.integers(1, 5, len(hot))},
            alarms,
            {"device": -2, "code": 0},
        ),
        "repairs": stream(
            rng,
            {"device": device[hot][repaired]},
            alarms[repaired] + rng.integers(5, 180, len(repaired)) * MINUTE,
            {"device": -1},
        ),
    }
