"""Paths into JSON texts: ``$.name``, ``$['name']``, ``$.list[0]``.

>>> steps("$.a['b c'][2]")
('a', 'b c', 2)
"""

from __future__ import annotations

import re
from functools import lru_cache

_STEP = re.compile(r"\.([^.\[\]*'\"\s]+)|\['([^']+)'\]|\[(\d+)\]")


@lru_cache(maxsize=512)
def steps(path: str) -> tuple[str | int, ...]:
    """Return the steps of a JSON path: names of fields, and positions in arrays from 0.

    Raises:
        ValueError: the path has steps of another kind.
    """
    if not path.startswith("$"):
        raise ValueError("it does not begin with $")
    found: list[str | int] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ValueError(f"{path[at:]} is no step such as .name or [0]")
        found.append(step[1] or step[2] or int(step[3]))
        at = step.end()
    return tuple(found)
