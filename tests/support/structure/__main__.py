"""Compare the tree with the accepted violations: ``python -m tests.support.structure``."""

from __future__ import annotations

import argparse
import sys

from tests.support.structure import accepted, words


def main() -> None:
    """Print differences, write a shorter list, or print the suspects of an area."""
    parser = argparse.ArgumentParser(prog="tests.support.structure", description=__doc__)
    parser.add_argument(
        "--shrink", action="store_true", help="write the list with what no longer violates removed"
    )
    parser.add_argument(
        "--words", metavar="AREA", help=f"print suspects of an area: {', '.join(words.AREAS)}"
    )
    options = parser.parse_args()
    if options.words:
        for path, line, pattern, text in words.found(options.words):
            sys.stdout.write(f"{path}:{line}: {pattern!r} in {text[:120]!r}\n")
        return
    for difference in accepted.differences():
        sys.stdout.write(f"{difference}\n")
    if options.shrink:
        accepted.shrink()


if __name__ == "__main__":
    main()
