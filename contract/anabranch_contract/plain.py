"""Frozen values as JSON, quickly: ``json`` asks for the fields of a dataclass when it meets one.

``dataclasses.asdict`` copies everything below a value first, which for state that is written after
every batch takes many times as long as writing it.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any


def plain(value: object) -> dict[str, Any]:
    """The fields of a dataclass instance by name, as they are: ``json.dumps(x, default=plain)``.

    Raises:
        TypeError: ``value`` is none.

    >>> import json
    >>> from anabranch_contract.protocol.activations import Visibility
    >>> json.dumps({"R": Visibility(3, None)}, default=plain)
    '{"R": {"batch": 3, "event_time": null}}'
    """
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


@lru_cache(maxsize=256)
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
