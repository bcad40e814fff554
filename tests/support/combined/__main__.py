# ruff: noqa: T201 - a command prints
"""Run seeds of random queries together: ``python -m tests.support.combined --seeds 0-99``.

A failing seed is printed with a shorter reproduction: a minimal set of its statements that still
fails, without injected faults if these are not needed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import structlog

from tests.support.combined.pipeline import Combined
from tests.support.scenarios.run import seeds_of
from tests.support.surroundings.redis import redis_url


def failure(
    seed: int, url: str, only: frozenset[int] | None = None, *, calm: bool = False
) -> tuple[str, Combined]:
    """Run a seed; return its failure (empty if it passes) and the run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Combined(Path(folder), url, seed, only, calm)
        try:
            run.play()
        except AssertionError as error:
            return str(error) or traceback.format_exc(limit=-2), run
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - reported with the seed
            return traceback.format_exc(limit=-6), run
        return "", run


def shrunken(seed: int, url: str, run: Combined) -> str:
    """Return a shorter reproduction of a failing seed, as text."""
    numbers = sorted(int(name[1:]) for name in run.registered)
    calm = bool(failure(seed, url, calm=True)[0])
    for number in list(numbers):
        fewer = [n for n in numbers if n != number]
        if fewer and failure(seed, url, frozenset(fewer), calm=calm)[0]:
            numbers = fewer
    why, last = failure(seed, url, frozenset(numbers), calm=calm)
    texts = "\n".join(f"  {name}: {last.registered[name]}" for name in last.registered)
    return f"Combined(folder, url, {seed}, only={set(numbers)}, calm={calm})\n{texts}\n{why}"


def main() -> int:
    """Run the command; returns 1 if a seed fails."""
    parser = argparse.ArgumentParser(prog="tests.support.combined", description=__doc__)
    parser.add_argument("--seeds", required=True, help="seeds, for example 1,4,7-9")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--shrink", action="store_true", help="print shorter reproductions")
    arguments = parser.parse_args()
    events, features, refusals = Counter[str](), Counter[str](), Counter[str]()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    begun, cpu, failed, done = time.monotonic(), time.process_time(), list[int](), 0
    with redis_url() as url:
        for seed in seeds_of(arguments.seeds):
            if time.monotonic() - begun > arguments.seconds:
                print(f"stopped before seed {seed}")
                break
            why, run = failure(seed, url)
            done += 1
            events, features = events + run.events, features + run.features
            refusals += run.refusals
            if why:
                failed.append(seed)
                print(f"--- seed {seed}\n{why}", flush=True)
                if arguments.shrink:
                    print(shrunken(seed, url, run), flush=True)
    for title, counts in (("features", features), ("events", events), ("refusals", refusals)):
        print(f"{title}:")
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            print(f"  {count:7} {name}")
    accepted = events["accepted"] / max(events["accepted"] + events["refused"], 1)
    print(f"{done} seeds, {time.process_time() - cpu:.0f} s of CPU, {accepted:.0%} accepted")
    print(f"failed: {failed}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
