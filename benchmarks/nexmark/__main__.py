"""``python -m benchmarks.nexmark [exact|report]``: cost of the queries, their exactness, or the
page.
"""

from __future__ import annotations

import sys

from benchmarks.nexmark import exact, report, together

if __name__ == "__main__":
    part, *others = sys.argv[1:] or [""]
    if part == "exact":
        sys.exit(exact.main(others))
    if part == "report":
        sys.exit(report.main(others))
    sys.exit(together.main(sys.argv[1:]))
