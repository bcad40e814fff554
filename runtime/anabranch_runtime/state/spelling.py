"""The canonical text of a state, mostly reused from the state before.

A state is large where there are many queries, and a batch changes little of it: all other values
are the very same objects. So the text of each entry of a mapping in a state, or in a dataclass of a
state, is kept beside the entry, and only changed entries are spelled again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from anabranch_contract import codec
from anabranch_runtime.storage.documents import Spelling, canonical


@dataclass(slots=True)
class Speller:
    """Spells states that follow one another, reusing the text of the last one."""

    #: Path of a field -> key -> the value under it in the last state, and the text of both.
    _known: dict[str, dict[str, tuple[Any, str]]] = field(default_factory=dict)

    def spell(self, state: Any) -> Spelling:
        """``state``, a dataclass, as :func:`documents.canonical` spells it."""
        return Spelling(self._record("", state))

    def _record(self, path: str, record: Any) -> str:
        parts = []
        for name, value in sorted(codec.fields(record).items()):
            if isinstance(value, dict):
                text = self._mapping(f"{path}.{name}", value)
            elif is_dataclass(value):
                text = self._record(f"{path}.{name}", value)
            else:
                text = canonical(value)
            parts.append(f"{canonical(name)}:{text}")
        return f"{{{','.join(parts)}}}"

    def _mapping(self, path: str, values: Mapping[str, Any]) -> str:
        last = self._known.get(path, {})
        found: dict[str, tuple[Any, str]] = {}
        for key in sorted(values):
            value, known = values[key], last.get(key)
            # Values never change in place. Numbers may be one object or two: either is right.
            if known is None or known[0] is not value:
                known = (value, f"{json.dumps(key)}:{canonical(value)}")
            found[key] = known
        self._known[path] = found
        return f"{{{','.join(text for _, text in found.values())}}}"
