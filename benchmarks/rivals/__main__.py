"""``python -m benchmarks.rivals tpch|rules|nexmark|report|install [NAME]``: a benchmark with other
engines, the page of results, or the installation of engines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks.report.figures import tell
from benchmarks.rivals import nexmark, report, rules, tpch
from benchmarks.rivals.environment import Environment, RivalError
from benchmarks.rivals.flink.engine import CLASSPATH, ENVIRONMENT

#: Class paths for the Java sources of engines.
_CLASSPATHS = {ENVIRONMENT.name: CLASSPATH}


def install(names: Sequence[str]) -> int:
    """Install the environments of these engines (of all, without a name); returns the exit code."""
    try:
        for name in names or Environment.names():
            Environment(name).install(_CLASSPATHS.get(name, ""))
    except RivalError as error:
        tell(str(error))
        return 1
    return 0


_PARTS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "install": install,
    "nexmark": nexmark.main,
    "report": report.main,
    "rules": rules.main,
    "tpch": tpch.main,
}

if __name__ == "__main__":
    part, *others = sys.argv[1:] or [""]
    if part not in _PARTS:
        tell(__doc__ or "")
        sys.exit(2)
    sys.exit(_PARTS[part](others))
