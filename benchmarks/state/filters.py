"""Cost of a probe's hit and miss in a hash index, with and without its filter; and a comparison of
kinds of filters.

``python -m benchmarks.state.filters [--json]``

``matching`` looks up hashes that are in an index and hashes that are not, with the index's filter
and without. ``kinds`` compares filters over the same hashes with the same number of bits:
``blocked``, the runtime's (one word per probe); ``bloom``, a plain Bloom filter with seven bits
anywhere; ``fuse``, a binary fuse filter (Graf, Lemire: "Binary Fuse Filters", JEA 2022), built by
the library ``pyfusefilter``. The library looks up one key per call from Python, so the same kind of
loop looks up keys in all filters. Probes are in the order of their hashes, as in the runtime.
"""
# Functions compiled by Numba have Numba's types: callers are type-checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from pyfusefilter import pyfusefilter as fuse

from anabranch_runtime.index.filters import bits_of, build_filter, word_of
from anabranch_runtime.index.hash_index import HashIndex, build_index
from anabranch_runtime.index.keys import KeyVector, mix
from anabranch_runtime.index.matching import Probes, described, in_order, match
from benchmarks.report import figures

U64 = npt.NDArray[np.uint64]


#: Number of bits that a plain Bloom filter sets per key: the best one for ten bits per key.
_BITS = 7


@njit(cache=True)
def _ask_blocked(table: U64, hashes: U64) -> int:
    passed = 0
    for i in range(len(hashes)):
        bits = bits_of(hashes[i])
        passed += table[word_of(hashes[i], len(table))] & bits == bits
    return passed


@njit(cache=True)
def _bit(hashed: int, bits: int) -> int:
    return ((hashed >> np.uint64(32)) * np.uint64(bits)) >> np.uint64(32)


@njit(cache=True)
def _build_bloom(hashes: U64, words: int) -> U64:
    table = np.zeros(words, np.uint64)
    for i in range(len(hashes)):
        one = hashes[i]
        step = (one * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
        for _ in range(_BITS):
            at = _bit(one, 64 * words)
            table[np.int64(at >> np.uint64(6))] |= np.uint64(1) << (at & np.uint64(63))
            one += step
    return table


@njit(cache=True)
def _ask_bloom(table: U64, hashes: U64) -> int:
    passed = 0
    for i in range(len(hashes)):
        one = hashes[i]
        step = (one * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
        there = True
        for _ in range(_BITS):
            at = _bit(one, 64 * len(table))
            word = table[np.int64(at >> np.uint64(6))]
            if (word >> (at & np.uint64(63))) & np.uint64(1) == 0:
                there = False
                break
            one += step
        passed += there
    return passed


@njit(cache=True)
def _high_product(a: int, b: int) -> int:
    """Return the high half of the product of two 64-bit words."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    carried = (a >> half) * (b & low) + (((a & low) * (b & low)) >> half)
    middle = (a & low) * (b >> half) + (carried & low)
    return (a >> half) * (b >> half) + (carried >> half) + (middle >> half)


@njit(cache=True)
def _ask_fuse(table: Any, seed: int, count: int, length: int, mask: int, hashes: U64) -> int:
    """Look up hashes as in the paper, section 3: three fingerprints in neighbouring segments."""
    passed = 0
    for i in range(len(hashes)):
        one = hashes[i] + seed
        one = (one ^ (one >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        one = (one ^ (one >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        one ^= one >> np.uint64(33)
        first = _high_product(one, count) & np.uint64(0xFFFFFFFF)
        second = (first + length) ^ ((one >> np.uint64(18)) & mask)
        third = (first + length + length) ^ (one & mask)
        there = table[np.int64(first)] ^ table[np.int64(second)] ^ table[np.int64(third)]
        passed += np.uint64(there) == (one ^ (one >> np.uint64(32))) & np.uint64(255)
    return passed


class _Fuse:
    """A binary fuse filter of the library, built and read in place."""

    def __init__(self, hashes: U64) -> None:
        self._filter = fuse.ffi.new("binary_fuse8_t *")
        if not fuse.lib.binary_fuse8_allocate(len(hashes), self._filter):
            raise MemoryError("no memory for a filter")
        mine = hashes.copy()  # The library sorts what it is given.
        place = fuse.ffi.cast("uint64_t *", fuse.ffi.from_buffer(mine))
        if not fuse.lib.binary_fuse8_populate(place, len(mine), self._filter):
            raise ValueError("no filter found")
        found = self._filter
        self.table = np.frombuffer(fuse.ffi.buffer(found.Fingerprints, found.ArrayLength), np.uint8)
        self._words = tuple(
            np.uint64(word)
            for word in (
                found.Seed, found.SegmentCountLength, found.SegmentLength, found.SegmentLengthMask
            )
        )  # fmt: skip

    def ask(self, hashes: U64) -> int:
        """Return the number of hashes that pass the filter."""
        return _ask_fuse(self.table, *self._words, hashes)

    def close(self) -> None:
        """Free the filter's memory."""
        fuse.lib.binary_fuse8_free(self._filter)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _nanoseconds(works: dict[str, Callable[[], Any]], per: int, rounds: int) -> dict[str, float]:
    """Return the median nanoseconds of each function per item; the functions alternate."""
    for work in works.values():
        work()
    spent = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            spent[name].append(_seconds(work))
    return {name: round(1e9 * statistics.median(s) / per, 2) for name, s in spent.items()}


def _misses(rows: int, probes: int) -> U64:
    draw = np.random.default_rng(rows + probes)
    return mix(draw.integers(rows, 1 << 40, probes).astype(np.uint64))


def matching(rows: int, probes: int, rounds: int) -> dict[str, Any]:
    """Return the nanoseconds per probe that finds one row, and per probe that finds none."""
    index = build_index(KeyVector(mix(np.arange(rows, dtype=np.uint64)), None, exact=True))
    plain = replace(index, filter=np.empty(0, np.uint64))
    draw = np.random.default_rng(rows)
    hits = in_order(mix(draw.integers(0, rows, probes).astype(np.uint64)))
    misses = in_order(_misses(rows, probes))

    def asking(wanted: Probes, asked: HashIndex) -> Callable[[], Any]:
        table = described([asked])
        return lambda: match(wanted, table)

    assert len(asking(hits, index)().rows) == probes
    assert len(asking(misses, index)().rows) == 0
    works = {
        "hit": asking(hits, index),
        "miss": asking(misses, index),
        "hit_without": asking(hits, plain),
        "miss_without": asking(misses, plain),
    }
    found = _nanoseconds(works, probes, rounds)
    return {
        "rows": rows,
        "probes": probes,
        "nanoseconds": found,
        "miss_of_hit": round(found["miss"] / found["hit"], 3),
        "miss_of_hit_without": round(found["miss_without"] / found["hit_without"], 3),
    }


def kinds(rows: int, probes: int, rounds: int) -> dict[str, Any]:
    """Return bits per key, false positives, and times to build and to look up, per kind
    of filter.
    """
    hashes = np.sort(mix(np.arange(rows, dtype=np.uint64)))
    misses = np.sort(_misses(rows, probes))
    blocked = build_filter(hashes)
    bloom, fused = _build_bloom(hashes, len(blocked)), _Fuse(hashes)
    try:
        assert _ask_blocked(blocked, hashes) == _ask_bloom(bloom, hashes) == rows
        assert fused.ask(hashes) == rows
        asks = {
            "blocked": lambda: _ask_blocked(blocked, misses),
            "bloom": lambda: _ask_bloom(bloom, misses),
            "fuse": lambda: fused.ask(misses),
        }
        builds = {
            "blocked": lambda: build_filter(hashes),
            "bloom": lambda: _build_bloom(hashes, len(blocked)),
            "fuse": lambda: _Fuse(hashes).close(),
        }
        asked = _nanoseconds(asks, probes, rounds)
        built = _nanoseconds(builds, rows, max(rounds // 3, 1))
        bits = {"blocked": blocked.nbytes, "bloom": bloom.nbytes, "fuse": fused.table.nbytes}
        return {
            "rows": rows,
            "probes": probes,
            "kinds": {
                name: {
                    "bits_per_key": round(8 * bits[name] / rows, 2),
                    "wrong": round(ask() / probes, 5),
                    "build_ns": built[name],
                    "ask_ns": asked[name],
                }
                for name, ask in asks.items()
            },
        }
    finally:
        fused.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description="what filters save, and cost")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 8_000_000])
    parser.add_argument("--probes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    found = {
        "matching": [matching(r, p, options.rounds) for r in options.rows for p in options.probes],
        "kinds": [kinds(r, options.probes[-1], options.rounds) for r in options.rows],
    }
    if options.json:
        settings = {name: value for name, value in vars(options).items() if name != "json"}
        document = figures.document("state", settings, load) | {"part": "filters"} | found
        sys.stdout.write(figures.line(document) + "\n")
        return 0
    for one in found["matching"]:
        spent = one["nanoseconds"]
        sys.stdout.write(
            f"{one['rows']:>10,} rows {one['probes']:>8,} probes: hit {spent['hit']} ns, miss "
            f"{spent['miss']} ({one['miss_of_hit']}); without hit {spent['hit_without']}, miss "
            f"{spent['miss_without']} ({one['miss_of_hit_without']})\n"
        )
    for one in found["kinds"]:
        for name, kind in one["kinds"].items():
            sys.stdout.write(
                f"{one['rows']:>10,} rows {name:<8} {kind['bits_per_key']} bits per key, "
                f"{100 * kind['wrong']:.2f} % wrong, {kind['build_ns']} ns per key to build, "
                f"{kind['ask_ns']} ns to ask\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
