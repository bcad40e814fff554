"""Rulesets split into the texts of their rows, to compare rulesets and to reuse decoded rows.

A *section* is a list of a ruleset's document, e.g. ``queries`` or ``rules.probe``. Its rows are the
list's elements, as text; rows are compared by their texts. Every other field is a *scalar*.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args, get_type_hints

from anabranch_contract import codec
from anabranch_contract.codec import Raw
from anabranch_contract.errors import RulesetError
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import RULES, Ruleset, RulesetId

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
        """Split a ruleset's text, unless it is one of the last that were split or joined.

        Raises:
            RulesetError: ``bad-ruleset``.
        """
        known = _known(text)
        if known is not None:
            return known.rows
        try:
            scalars = codec.loads(text, dict[str, Raw])
            rules = codec.loads(scalars.pop("rules"), dict[str, list[Raw]])
            found = {f"rules.{kind}": list(map(bytes, rows)) for kind, rows in rules.items()}
            for name in [n for n, value in scalars.items() if bytes(value).startswith(b"[")]:
                found[name] = list(map(bytes, codec.loads(scalars.pop(name), list[Raw])))
        except (KeyError, codec.Malformed) as cause:
            raise RulesetError("bad-ruleset", f"malformed ruleset: {cause!r}") from cause
        rows = cls(found, scalars)
        _LATEST.append(_Text(text, rows, joined=False))
        return rows

    def text(self) -> str:
        """Return the ruleset's text; exactly the original one if ``ruleset.dumps`` wrote that."""
        text = self._join()
        _LATEST.append(_Text(text, self, joined=True))
        return text

    def _join(self) -> str:
        rules: dict[str, list[Raw]] = {}
        document: dict[str, object] = {**self.scalars, "rules": rules}
        for name, rows in self.sections.items():
            kind = name.removeprefix("rules.")
            (document if kind == name else rules)[kind] = list(map(Raw, rows))
        return codec.dumps(document)

    def is_of(self, text: str) -> bool:
        """Whether :meth:`text` returns ``text``."""
        known = _known(text)
        joined = known is not None and known.rows is self and known.joined
        return joined or self._join() == text

    def is_renumbered(self, other: RulesetRows) -> bool:
        """Whether two rulesets are equal but for the epoch's number."""
        one, two = ({**rows.scalars, "epoch": b""} for rows in (self, other))
        return (
            one.keys() == two.keys()
            and all(bytes(one[name]) == bytes(two[name]) for name in one)
            and self.sections == other.sections
        )


@dataclass(frozen=True, slots=True)
class _Text:
    """A text with its rows; ``joined``: whether it was made of the rows."""

    text: str
    rows: RulesetRows
    joined: bool


#: The last texts that were split or joined. They are found by identity: a text of 5,000 queries has
#: 17 MB.
_LATEST = deque[_Text](maxlen=3)


def _known(text: str) -> _Text | None:
    return next((one for one in tuple(_LATEST) if one.text is text), None)


def renumbered(text: str, epoch: int) -> str:
    """Return the text of the same ruleset for another epoch, as ``ruleset.renumbered``. Rows of
    ``text`` are rows of the result, too, if they are known.
    """
    found, known = rulesets.renumbered(text, epoch), _known(text)
    if known is not None and found is not text:
        scalars = {**known.rows.scalars, "epoch": Raw(str(epoch).encode())}
        rows = RulesetRows(known.rows.sections, scalars)
        _LATEST.append(_Text(found, rows, known.joined))
    return found


class RowTexts:
    """Texts of rulesets' rows; a row that the last ruleset had as well, as the same object, is not
    encoded again.
    """

    def __init__(self) -> None:
        #: Identity of a row of the last ruleset -> the row, and its text.
        self._known: dict[int, tuple[object, bytes]] = {}

    def rows(self, ruleset: Ruleset) -> RulesetRows:
        """Return the rows of ``ruleset``, whose joined text is that of ``ruleset.dumps``."""
        nothing: dict[str, Any] = {name: () for name, _ in _FIELDS.values()}
        empty = RulesetRows.of(rulesets.dumps(replace(ruleset, **nothing)))
        known, kept, sections = self._known, dict[int, tuple[object, bytes]](), {}
        for section in empty.sections:
            rows = getattr(ruleset, _FIELDS[section][0])
            new = [row for row in rows if id(row) not in known]
            kept |= zip(map(id, new), zip(new, _texts(new), strict=True), strict=True)
            kept |= {id(row): known[id(row)] for row in rows if id(row) in known}
            sections[section] = [kept[id(row)][1] for row in rows]
        self._known = kept
        return RulesetRows(sections, empty.scalars)


def _texts(rows: list[Any]) -> Iterable[bytes]:
    return map(bytes, codec.loads(codec.dumps(rows), list[Raw]))


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded ruleset.

    Attributes:
        document: its text, split into rows.
        rows: section -> decoded rows by text.
    """

    ruleset: Ruleset
    document: RulesetRows
    rows: Mapping[str, Mapping[bytes, Any]]


def decoded(document: RulesetRows, before: Decoded | None = None) -> Decoded:
    """Decode a ruleset's ``document``. Rows equal to rows of ``before`` become the same objects, so
    that caches keyed by row stay valid.

    Raises:
        RulesetError: as ``ruleset.from_json`` does.
    """
    # Decode the scalar fields alone, with empty sections.
    empty = rulesets.loads(
        RulesetRows({name: [] for name in document.sections}, document.scalars)._join()
    )
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
    return Decoded(replace(empty, **fields), document, rows)


#: The last ruleset of :func:`read_ruleset`, whose unchanged rows the next one reuses.
_LAST = deque[Decoded](maxlen=1)


def read_ruleset(text: str, name: RulesetId) -> Ruleset:
    """Parse the ruleset ``text``. If it differs from the last one only in the epoch number, the
    parsed rules are reused.

    Raises:
        RulesetError: malformed text, as ``ruleset.from_json``.
    """
    document, last = RulesetRows.of(text), next(iter(tuple(_LAST)), None)
    if last is None or not document.is_renumbered(last.document):
        last = decoded(document, last)
        _LAST.append(last)
    return replace(last.ruleset, epoch=name.epoch)


def _read(name: str, texts: list[bytes]) -> list[Any]:
    """Decode the row texts of a ruleset's section ``name``."""
    kind: Any = _FIELDS[name][1]
    try:
        return codec.loads(b"[" + b",".join(texts) + b"]", list[kind])
    except codec.Malformed as cause:
        raise RulesetError("bad-ruleset", f"malformed ruleset: {name}: {cause!r}") from cause
