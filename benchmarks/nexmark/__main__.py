"""``python -m benchmarks.nexmark [exact]``: what the queries cost, or whether they are exact."""

from __future__ import annotations

import sys

from benchmarks.nexmark import exact, together

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["exact"]:
        sys.exit(exact.main(arguments[1:]))
    sys.exit(together.main(arguments))
