"""Rulesets split into the texts of their rows, to compare rulesets and to reuse decoded rows.

A *section* is a list of a ruleset's document, e.g. ``queries`` or ``rules.probe``. Its rows are the
list's elements, as text; rows are compared by their texts. Every other field is a *scalar*.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from anabranch_contract import codec
from anabranch_contract.codec import Raw
from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ruleset import RULES, Ruleset, RulesetId, loads, renumbered

_NAMES = {rules: f"rules.{kind}" for kind, rules in RULES.items()}
#: Section of a ruleset -> its field in :class:`Ruleset`, and the type of its rows.
_FIELDS = {
    _NAMES.get(name, name): (name, get_args(kind)[0])
    for name, kind in get_type_hints(Ruleset).items()
    if get_args(kind)
}


@dataclass(frozen=True, slots=True)
class RulesetRows:
    """A ruleset's text, split into rows.

    Attributes:
        sections: section name -> its rows. ``scalars``: name -> text of a field that is not a list.
    """

    sections: Mapping[str, list[bytes]]
    scalars: Mapping[str, Raw]

    @classmethod
    def of(cls, text: str) -> RulesetRows:
        """Split a ruleset's text.

        Raises:
            RulesetError: ``bad-ruleset``.
        """
        try:
            scalars = codec.loads(text, dict[str, Raw])
            rules = codec.loads(scalars.pop("rules"), dict[str, list[Raw]])
            found = {f"rules.{kind}": list(map(bytes, rows)) for kind, rows in rules.items()}
            for name in [n for n, value in scalars.items() if bytes(value).startswith(b"[")]:
                found[name] = list(map(bytes, codec.loads(scalars.pop(name), list[Raw])))
        except (KeyError, codec.Malformed) as cause:
            raise RulesetError("bad-ruleset", f"malformed ruleset: {cause!r}") from cause
        return cls(found, scalars)

    def text(self) -> str:
        """Return the ruleset's text; exactly the original one if ``ruleset.dumps`` wrote that."""
        rules: dict[str, list[Raw]] = {}
        document: dict[str, object] = {**self.scalars, "rules": rules}
        for name, rows in self.sections.items():
            kind = name.removeprefix("rules.")
            (document if kind == name else rules)[kind] = list(map(Raw, rows))
        return codec.dumps(document)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A ruleset, and for each of its sections the decoded rows by text."""

    ruleset: Ruleset
    rows: Mapping[str, Mapping[bytes, Any]] = field(default_factory=lambda: MappingProxyType({}))


def decoded(text: str, before: Decoded | None = None) -> Decoded:
    """Decode a ruleset's ``text``. Rows equal to rows of ``before`` become the same objects, so
    that caches keyed by row stay valid.

    Raises:
        RulesetError: as ``ruleset.from_json`` does.
    """
    document = RulesetRows.of(text)
    # Decode the scalar fields alone, with empty sections.
    empty = loads(RulesetRows({name: [] for name in document.sections}, document.scalars).text())
    rows: dict[str, dict[bytes, Any]] = {}
    fields: dict[str, Any] = {}
    for name, texts in document.sections.items():
        if name not in _FIELDS:
            continue
        known = {} if before is None else before.rows.get(name, {})
        rows[name] = {text: known[text] for text in texts if text in known}
        new = [text for text in dict.fromkeys(texts) if text not in known]
        rows[name] |= zip(new, _read(name, new), strict=True)
        fields[_FIELDS[name][0]] = tuple(map(rows[name].__getitem__, texts))
    return Decoded(replace(empty, **fields), rows)


#: The last ruleset of :func:`read_ruleset`, whose unchanged rows the next one reuses.
_LAST = deque[Decoded](maxlen=1)


def read_ruleset(text: str, name: RulesetId) -> Ruleset:
    """Parse the ruleset ``text``. If it differs from the last one only in the epoch number, the
    parsed rules are reused.

    Raises:
        RulesetError: malformed text, as ``ruleset.from_json``.
    """
    return replace(_decoded(renumbered(text, 0)), epoch=name.epoch)


@lru_cache(maxsize=1)
def _decoded(text: str) -> Ruleset:
    _LAST.append(decoded(text, next(iter(_LAST), None)))
    return _LAST[-1].ruleset


def _read(name: str, texts: list[bytes]) -> list[Any]:
    """Decode the row texts of a ruleset's section ``name``."""
    kind: Any = _FIELDS[name][1]
    try:
        return codec.loads(b"[" + b",".join(texts) + b"]", list[kind])
    except codec.Malformed as cause:
        raise RulesetError("bad-ruleset", f"malformed ruleset: {name}: {cause!r}") from cause
