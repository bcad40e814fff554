"""Generated data of the example fraud: cards, logins, address changes, payments, confirmations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from examples.events import MINUTE, cents, moments, stream

_COUNTRIES = np.array(["DE", "FR", "IT", "NO", "PL"])


def tables(seed: int) -> dict[str, pa.Table]:
    """Return stream → its rows in the order of arrival."""
    rng = np.random.default_rng(seed)
    home = _COUNTRIES[rng.integers(0, 5, 60)]
    cards = {"card": np.arange(60), "customer": np.arange(60) % 40, "home": home}
    logins, changes, payments = moments(rng, 500), moments(rng, 60), moments(rng, 1500)
    card = rng.integers(0, 60, 1500)
    abroad = rng.random(1500) < 0.06
    country = np.where(abroad, _COUNTRIES[rng.integers(0, 5, 1500)], home[card])
    paid = np.rint(np.exp(rng.normal(8.8, 1.4, 1500))).clip(100, 300_000)
    answered = np.flatnonzero((paid > 40_000) & (rng.random(1500) < 0.7))
    delays = rng.integers(1, 30, len(answered)) * MINUTE
    return {
        "cards": pa.table(cards),
        "card_logins": stream(
            rng,
            {"customer": rng.integers(0, 40, 500), "new_device": rng.random(500) < 0.2},
            logins,
            {"customer": -1, "new_device": False},
        ),
        "address_changes": stream(
            rng, {"customer": rng.integers(0, 40, 60)}, changes, {"customer": -1}
        ),
        "payments": stream(
            rng,
            {"id": np.arange(1500), "card": card, "country": country, "amount": cents(paid)},
            payments,
            {"id": -1, "card": -1, "country": "", "amount": 0},
        ),
        "confirmations": stream(
            rng, {"payment": answered}, payments[answered] + delays, {"payment": -1}
        ),
    }
