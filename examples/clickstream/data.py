"""Generated data of the example clickstream: campaigns, visits, carts and purchases of a shop."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.events import HOUR, MINUTE, cents, moments, stream

_NAMES = np.array(["autumn", "brand", "coupon", "digest", "event", "friends"])
_CHANNELS = np.array(["search", "mail", "mail", "mail", "social", "social"])


def tables(seed: int) -> dict[str, pa.Table]:
    """Return stream → its rows in the order of arrival."""
    rng = np.random.default_rng(seed)
    visits, visitor = moments(rng, 2000), rng.integers(0, 300, 2000)
    followed = np.sort(rng.choice(2000, 600, replace=False))
    carts = visits[followed] + rng.integers(1, 40, 600) * MINUTE
    bought = np.sort(rng.choice(600, 280, replace=False))
    purchases = carts[bought] + rng.integers(1, 90, 280) * MINUTE
    product = rng.integers(0, 25, 600)
    return {
        "campaigns": pa.table({"campaign": _NAMES, "channel": _CHANNELS}),
        "visits": stream(
            rng,
            {"visitor": visitor, "campaign": _NAMES[rng.integers(0, 6, 2000)]},
            visits,
            {"visitor": -1, "campaign": ""},
        ),
        "carts": stream(
            rng,
            {"visitor": visitor[followed], "product": product},
            carts,
            {"visitor": -1, "product": -1},
        ),
        "purchases": stream(
            rng,
            {
                "id": np.arange(280),
                "visitor": visitor[followed][bought],
                "product": product[bought],
                "amount": cents(rng.integers(500, 20_000, 280)),
            },
            purchases.clip(0, 14 * HOUR),
            {"id": -1, "visitor": -2, "product": -1, "amount": 0},
        ),
    }
