"""``python -m tests.support.run_scenarios --seeds 0-59``: replay random scenarios, check each.

Prints one line per seed. A scenario that fails stays in ``--keep``, with its results.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.replay_check import Verdict, replay_and_check
from tests.support.scenarios import generate

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code is the number of seeds that failed (at most 99)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-9", help="such as 3 or 0-59 or 1,4,7-9")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--all", action="store_true", help="keep what passed as well")
    options = parser.parse_args(arguments)
    root = options.keep or Path(tempfile.mkdtemp(prefix="anabranch-scenarios-"))
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        seeds = _seeds(options.seeds)
        for seed, (verdict, seconds) in zip(
            seeds, pool.map(lambda s: _run(s, root / str(s)), seeds), strict=True
        ):
            failed += bool(verdict.problems)
            sys.stdout.write(f"seed {seed} {seconds:.0f}s {verdict}\n")
            sys.stdout.flush()
            if not verdict.problems and not options.all:
                shutil.rmtree(root / str(seed))
    sys.stdout.write(f"{failed} failed; working folder {root}\n")
    return min(failed, 99)


def _run(seed: int, folder: Path) -> tuple[Verdict, float]:
    shutil.rmtree(folder, ignore_errors=True)
    scenario = generate(seed, folder)
    return replay_and_check(scenario.path, folder / "out", scenario.queries)


def _seeds(text: str) -> list[int]:
    """The seeds that ``text`` names.

    >>> _seeds("1,4,7-9")
    [1, 4, 7, 8, 9]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


if __name__ == "__main__":
    sys.exit(main())
