"""The runtime as a file, as ``spark-submit runtime.py OPTION...`` takes it."""

import sys

from anabranch_runtime.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
