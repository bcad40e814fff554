"""``python -m benchmarks.nexmark [exact]``: what the queries cost, or whether they are exact."""

from __future__ import annotations

import sys

from benchmarks.nexmark import exact

if __name__ == "__main__":
    if sys.argv[1:2] == ["exact"]:
        sys.exit(exact.main(sys.argv[2:]))
