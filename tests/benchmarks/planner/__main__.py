"""Entry point of ``python -m tests.benchmarks.planner``."""

import sys

from tests.benchmarks.planner.command import main

if __name__ == "__main__":
    sys.exit(main())
