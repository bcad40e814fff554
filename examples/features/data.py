"""Generated data of the example features: rides, ratings, statuses of drivers, tiers of riders."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.events import MINUTE, cents, moments, stream

_TIERS = np.array(["basic", "silver", "gold"])
_STATES = np.array(["free", "driving", "pause"])


def tables(seed: int) -> dict[str, pa.Table]:
    """Return stream → its rows in the order of arrival."""
    rng = np.random.default_rng(seed)
    rides, driver = moments(rng, 900), rng.integers(0, 40, 900)
    rated = np.flatnonzero(rng.random(900) < 0.7)
    states = moments(rng, 700)
    # Each rider is registered once; a third of them change their tier later.
    riders = np.concatenate([np.arange(150), np.sort(rng.choice(150, 50, replace=False))])
    return {
        "riders": pa.table({"rider": riders, "tier": _TIERS[rng.integers(0, 3, 200)]}),
        "rides": stream(
            rng,
            {
                "id": np.arange(900),
                "driver": driver,
                "rider": rng.integers(0, 150, 900),
                "fare": cents(rng.integers(400, 6000, 900)),
            },
            rides,
            {"id": -1, "driver": -1, "rider": -1, "fare": 0},
        ),
        "ratings": stream(
            rng,
            {"ride": rated, "stars": rng.integers(1, 6, len(rated))},
            rides[rated] + rng.integers(5, 60, len(rated)) * MINUTE,
            {"ride": -2, "stars": 0},
        ),
        "driver_states": stream(
            rng,
            {"driver": rng.integers(0, 40, 700), "state": _STATES[rng.integers(0, 3, 700)]},
            states,
            {"driver": -2, "state": ""},
        ),
    }
