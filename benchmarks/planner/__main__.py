"""Entry point of ``python -m benchmarks.planner``."""

import sys

from benchmarks.planner.command import main

if __name__ == "__main__":
    sys.exit(main())
