"""Generator of Nexmark's events (persons, auctions and bids) as Arrow tables, from a seed.

Written from the published model. Of 50 events 1 is a person, 3 are auctions and 46 are bids; the
time of event ``n`` follows from the rate. Identifiers count up from 1000, categories from 10. A bid
is on the hot auction (the first of each hundred) with probability 1/2, else on one that is probably
still open; bidders and sellers are hot with probability 3/4, else one of the active persons. A few
identifiers are ahead of the stream, so a row may arrive before the row that it refers to.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

#: Numbers of events of each kind among :data:`CYCLE` events.
PERSONS, AUCTIONS, BIDS = 1, 3, 46
CYCLE = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
#: Number of persons or auctions in a group with one hot member.
HOT_GROUP = 100
#: Ratio ``r`` of a hot auction, seller, bidder or channel, whose probability is 1 - 1 / r.
HOT_AUCTIONS, HOT_SELLERS, HOT_BIDDERS, HOT_CHANNELS = 2, 4, 4, 2
ACTIVE_PERSONS, OPEN_AUCTIONS = 1000, 100
#: Maximum distance by which an identifier is ahead of the stream.
LEAD = 10
#: Mean bytes of a row; the column ``extra`` fills it up.
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
CHANNELS = 10_000
SIDE_ROWS = 10_000

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
FIRST_NAMES = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky"),
    *("Kate", "Julie", "Sarah", "Deiter", "Walter"),
)
LAST_NAMES = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels"),
    *("Walton", "Smith", "Jones", "Noris"),
)
WELL_KNOWN = ("Google", "Facebook", "Baidu", "Apple")

BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_TIME = pa.timestamp("us", "UTC")
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


@dataclass(frozen=True, slots=True)
class Events:
    """Generated rows of one Nexmark stream.

    Attributes:
        numbers: number of each row's event, ascending.
    """

    table: pa.Table
    numbers: Numbers

    def upto(self, number: int) -> int:
        """Return the number of rows before the event ``number``."""
        return int(np.searchsorted(self.numbers, number))


def generate(
    events: int, *, rate: float = 10_000.0, seed: int = 1, begin: dt.datetime = BEGIN
) -> dict[str, Events]:
    """Generate the streams of ``events`` events, and the table ``side_input``, which comes first.

    Args:
        rate: events per second of event time.
        begin: time of the first event.
    """
    number = np.arange(events, dtype=np.int64)
    place = number % CYCLE
    made = {
        "person": (_persons, number[place < PERSONS]),
        "auction": (_auctions, number[(place >= PERSONS) & (place < PERSONS + AUCTIONS)]),
        "bid": (_bids, number[place >= PERSONS + AUCTIONS]),
    }
    base = int(begin.timestamp()) * 1000
    found = {}
    for position, (name, (draw, chosen)) in enumerate(made.items()):
        rng = np.random.default_rng((seed, position))
        millis = base + (chosen * (1000.0 / rate)).astype(np.int64)
        found[name] = Events(pa.table(draw(rng, chosen, millis, rate)), chosen)
    key = np.arange(SIDE_ROWS, dtype=np.int64)
    side = pa.table({"key": key, "value": pc.cast(pa.array(key), pa.string())})
    found["side_input"] = Events(side, np.zeros(SIDE_ROWS, np.int64))
    return found


def write(streams: dict[str, Events], folder: Path) -> dict[str, Path]:
    """Write a Parquet file per stream into ``folder``; return stream -> path."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, events in streams.items():
        found[name] = folder / f"{name}.parquet"
        pq.write_table(events.table, found[name])
    return found


# --- the streams -------------------------------------------------------------------------------


def _persons(
    rng: np.random.Generator, number: Numbers, millis: Numbers, rate: float
) -> dict[str, pa.Array]:
    """Generate the columns of persons with the event numbers ``number``."""
    size = len(number)
    name = _joined([_picked(rng, FIRST_NAMES, size), _picked(rng, LAST_NAMES, size)], " ")
    mail = _joined([_text(rng, size, 3, 7), _constant("@", size), _text(rng, size, 3, 5)])
    digits = [pc.utf8_lpad(_decimal(rng.integers(0, 10_000, size)), 4, "0") for _ in range(4)]
    columns = {
        "id": pa.array(FIRST_ID + _last_person(number)),
        "name": name,
        "email_address": _joined([mail, _constant(".com", size)]),
        "credit_card": _joined(digits, " "),
        "city": _picked(rng, CITIES, size),
        "state": _picked(rng, STATES, size),
        "date_time": _times(millis),
    }
    return {**columns, "extra": _extra(rng, size, PERSON_BYTES - 80)}


def _auctions(
    rng: np.random.Generator, number: Numbers, millis: Numbers, rate: float
) -> dict[str, pa.Array]:
    """Generate the columns of auctions with the event numbers ``number``."""
    size = len(number)
    last = _last_person(number)
    hot = rng.integers(0, HOT_SELLERS, size) > 0
    seller = np.where(hot, last // HOT_GROUP * HOT_GROUP, _some_person(rng, last))
    initial = _prices(rng, size)
    # Event time in ms in which as many auctions begin as are open at once: the mean length of an
    # auction.
    horizon = OPEN_AUCTIONS * CYCLE / AUCTIONS * 1000.0 / rate
    length = 1 + rng.integers(0, max(int(horizon * 2), 1), size)
    columns = {
        "id": pa.array(FIRST_ID + _last_auction(number)),
        "item_name": _text(rng, size, 3, 20),
        "description": _text(rng, size, 3, 100),
        "initial_bid": pa.array(initial),
        "reserve": pa.array(initial + _prices(rng, size)),
        "date_time": _times(millis),
        "expires": _times(millis + length),
        "seller": pa.array(FIRST_ID + seller),
        "category": pa.array(FIRST_CATEGORY + rng.integers(0, CATEGORIES, size)),
    }
    return {**columns, "extra": _extra(rng, size, AUCTION_BYTES - 110)}


def _bids(
    rng: np.random.Generator, number: Numbers, millis: Numbers, rate: float
) -> dict[str, pa.Array]:
    """Generate the columns of bids with the event numbers ``number``."""
    size = len(number)
    last, person = _last_auction(number), _last_person(number)
    least = np.maximum(last - OPEN_AUCTIONS, 0)
    open_one = least + rng.integers(0, last - least + 1 + LEAD)
    hot = rng.integers(0, HOT_AUCTIONS, size) > 0
    auction = np.where(hot, last // HOT_GROUP * HOT_GROUP, open_one)
    hot = rng.integers(0, HOT_BIDDERS, size) > 0
    # Hot bidders are the second person of each hundred, so that they are not the hot sellers.
    bidder = np.where(hot, person // HOT_GROUP * HOT_GROUP + 1, _some_person(rng, person))
    channel, url = _channels(rng, size)
    columns = {
        "auction": pa.array(FIRST_ID + auction),
        "bidder": pa.array(FIRST_ID + bidder),
        "price": pa.array(_prices(rng, size)),
        "channel": channel,
        "url": url,
        "date_time": _times(millis),
    }
    return {**columns, "extra": _extra(rng, size, BID_BYTES - 32)}


def _last_person(number: Numbers) -> Numbers:
    """Return the number, from 0, of the newest person as of each event."""
    return number // CYCLE * PERSONS + np.minimum(number % CYCLE, PERSONS - 1)


def _last_auction(number: Numbers) -> Numbers:
    """Return the number, from 0, of the newest auction as of each event of an auction or a bid."""
    return number // CYCLE * AUCTIONS + np.minimum(number % CYCLE - PERSONS, AUCTIONS - 1)


def _some_person(rng: np.random.Generator, last: Numbers) -> Numbers:
    """Draw for each event one of the active persons, or one that arrives later."""
    active = np.minimum(last + 1, ACTIVE_PERSONS)
    found: Numbers = last + 1 - active + rng.integers(0, active + LEAD)
    return found


def _prices(rng: np.random.Generator, size: int) -> Numbers:
    """Draw prices in cents, from 100 to 100 million, whose logarithms are uniform."""
    return np.round(10.0 ** (rng.random(size) * 6) * 100).astype(np.int64)


def _channels(rng: np.random.Generator, size: int) -> tuple[pa.Array, pa.Array]:
    """Draw channels, and their addresses (URLs); a channel always has the same address."""
    draw = np.random.default_rng((CHANNELS, size and 1))
    every = CHANNELS + len(WELL_KNOWN)
    parts = [_constant("https://www.nexmark.com", every)]
    parts += [_text(draw, every, 3, 5) for _ in range(3)]
    url = _joined([*parts, _constant("item.htm?query=1", every)], "/")
    numbered = _decimal(np.arange(CHANNELS, dtype=np.int64))
    names = pa.concat_arrays(
        [_joined([_constant("channel-", CHANNELS), numbered]), pa.array(WELL_KNOWN)]
    )
    # Nine in ten of the numbered channels have their number in their address.
    known = draw.integers(0, 10, every) > 0
    known[CHANNELS:] = False
    marks = _decimal(draw.integers(0, 1 << 31, every))
    url = pc.if_else(pa.array(known), _joined([url, _constant("&channel_id=", every), marks]), url)
    hot = rng.integers(0, HOT_CHANNELS, size) > 0
    well_known = CHANNELS + rng.integers(0, len(WELL_KNOWN), size)
    chosen = pa.array(np.where(hot, well_known, rng.integers(0, CHANNELS, size)))
    return names.take(chosen), url.take(chosen)


# --- columns -----------------------------------------------------------------------------------


def _times(millis: Numbers) -> pa.Array:
    return pa.array(millis * 1000).cast(_TIME)


def _picked(rng: np.random.Generator, values: Sequence[str], size: int) -> pa.Array:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), size)))


def _constant(value: str, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), size)


def _decimal(values: Numbers) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _joined(parts: Sequence[pa.Array], separator: str = "") -> pa.Array:
    return pc.binary_join_element_wise(*parts, separator)


def _extra(rng: np.random.Generator, size: int, mean: int) -> pa.Array:
    """Draw texts with lengths of ``mean`` characters, plus or minus a fifth."""
    return _text(rng, size, mean - mean // 5, mean + mean // 5)


def _text(rng: np.random.Generator, size: int, least: int, most: int) -> pa.Array:
    """Draw random texts of small letters, with lengths from ``least`` to ``most``."""
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum(rng.integers(least, most + 1, size), out=offsets[1:])
    letters = _LETTERS[rng.integers(0, len(_LETTERS), int(offsets[-1]), dtype=np.uint8)]
    return pa.StringArray.from_buffers(size, pa.py_buffer(offsets), pa.py_buffer(letters))
