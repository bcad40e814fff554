"""Variants of Nexmark's join queries: one template with other categories, states and prices."""

from __future__ import annotations

import itertools

from benchmarks.nexmark.generator import CATEGORIES, FIRST_CATEGORY, STATES
from benchmarks.nexmark.statements import Nexmark

#: Least prices in cents of the bids in a variant.
_PRICES = (100, 1_000, 10_000, 100_000, 1_000_000)
_CATEGORIES = tuple(range(FIRST_CATEGORY, FIRST_CATEGORY + CATEGORIES))

_SELLERS = """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = {category} AND p.state = '{state}'"""
_BIDS = """SELECT b.auction, b.bidder, b.price, b.date_time AS bid_time, a.item_name, a.seller
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = {category} AND b.price >= {price}"""
_BIDDERS = """SELECT b.auction, b.price, p.name, p.city, a.category FROM bid b
JOIN person p ON p.id = b.bidder JOIN auction a ON a.id = b.auction
WHERE a.category = {category} AND p.state = '{state}' AND b.price >= {price}"""
_TRADERS = """SELECT b.price, p.name, p.city, a.item_name, a.reserve FROM bid b
JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder
WHERE a.category = {category} AND p.state = '{state}' AND b.price >= {price}"""
_FAMILIES = (("q3", _SELLERS), ("q20", _BIDS), ("bidders", _BIDDERS), ("q23", _TRADERS))


def variants(count: int) -> list[Nexmark]:
    """Return the first ``count`` variants, from the templates in turn; there are at most 355
    different ones.

    Raises:
        ValueError: there are fewer different variants than ``count``.
    """
    every = [
        itertools.product(_CATEGORIES, STATES, _PRICES[:1]),
        itertools.product(_CATEGORIES, STATES[:1], _PRICES),
        itertools.product(_CATEGORIES, STATES, _PRICES),
        itertools.product(_CATEGORIES, STATES, _PRICES),
    ]
    drawn = [
        [
            Nexmark(
                f"{name}_{number}",
                f"a variant of {name}",
                sql.format(category=category, state=state, price=price),
                joins=True,
            )
            for number, (category, state, price) in enumerate(choices)
        ]
        for (name, sql), choices in zip(_FAMILIES, every, strict=True)
    ]
    found = [one for turn in itertools.zip_longest(*drawn) for one in turn if one is not None]
    if count > len(found):
        raise ValueError(f"there are {len(found)} variants, not {count}")
    return found[:count]
