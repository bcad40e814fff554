"""``python -m benchmarks.rivals [install NAME]``: the benchmark, or an engine's environment."""

from __future__ import annotations

import sys

from benchmarks.report.figures import tell
from benchmarks.rivals import nexmark
from benchmarks.rivals.environment import Environment, RivalError
from benchmarks.rivals.flink.engine import CLASSPATH, ENVIRONMENT

#: Class paths of the engines in Java.
_CLASSPATHS = {ENVIRONMENT.name: CLASSPATH}


def install(names: list[str]) -> int:
    """Make the environments of these engines, of all without a name; returns the exit code."""
    try:
        for name in names or Environment.names():
            Environment(name).install(_CLASSPATHS.get(name, ""))
    except RivalError as error:
        tell(str(error))
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["install"]:
        sys.exit(install(sys.argv[2:]))
    sys.exit(nexmark.main(sys.argv[1:]))
