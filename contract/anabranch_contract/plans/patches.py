"""Rulesets as patches of another ruleset: rows copied from that one, and new rows.

The *base* of a patch is a ruleset stored in full, never a patch, and the patch names the digest of
its text. Each section of the resulting ruleset is an ordered list of edits (:class:`Edit`), as in
other delta encodings: a range of rows of the base, then new rows. Rows that no edit copies are
dropped. So the patch defines the order of rows, independently of any sort order. The patch also
names the digest of the resulting text: applying it yields exactly that text, or an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from anabranch_contract import codec
from anabranch_contract.codec import Message, Raw, Row
from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.rows import RulesetRows
from anabranch_contract.plans.ruleset import RulesetId, digest

#: Version of the patch format; the texts of rows in a patch have the version of rulesets.
VERSION = 1
#: Maximum length of a published patch, as a fraction of its ruleset's text.
WORTH = 0.25

#: Prefix of every patch's text; no ruleset's text begins with it.
_BEGIN = '{"base":'


class Edit(Row, frozen=True):
    """Edit: copy ``count`` rows of the base's section from ``start`` on, then append ``rows``."""

    start: int
    count: int
    rows: tuple[Raw, ...]


@dataclass(frozen=True, slots=True)
class Patch(Message):
    """A ruleset as its difference from another ruleset, the base.

    Attributes:
        base, base_digest: the base's id, and the digest of its text.
        digest: digest of the resulting text.
        sections: section name -> its edits. ``scalars``: all fields that are not sections.
    """

    base: RulesetId
    base_digest: str
    digest: str
    sections: dict[str, tuple[Edit, ...]]
    scalars: dict[str, Raw]
    patch: int = VERSION


def is_patch(text: str) -> bool:
    """Whether ``text`` is a patch, not a full ruleset.

    >>> is_patch('{"base":[3,0],"base_digest":"..."}'), is_patch('{"derived":[],"epoch":3}')
    (True, False)
    """
    return text.startswith(_BEGIN)


def loads(text: str) -> Patch:
    """Decode a patch written by :meth:`Patch.dumps`.

    Raises:
        RulesetError: ``unknown-version``, or ``bad-patch``.
    """
    try:
        written = codec.loads(text, dict[str, Raw]).get("patch")
        if written is None or bytes(written) != str(VERSION).encode():
            shown = None if written is None else bytes(written).decode()
            raise RulesetError(
                "unknown-version",
                f"patch version {shown} is not supported",
                remedy=f"the runtime reads version {VERSION}: run service and runtime of one "
                "release",
            )
        return Patch.loads(text)
    except codec.Malformed as cause:
        raise RulesetError("bad-patch", f"malformed patch of a ruleset: {cause}") from cause


def difference(base: RulesetId, base_text: str, text: str) -> Patch:
    """Return the patch that turns ``base_text``, the text of ruleset ``base``, into ``text``.

    Raises:
        RulesetError: ``digest-differs``: ``text`` is not as ``ruleset.dumps`` writes it, so that no
            patch yields it; ``bad-ruleset``.
    """
    before, after = _base_rows(base_text).sections, RulesetRows.of(text)
    if not after.is_of(text):
        raise _another(base)
    sections = {name: _edits(before.get(name, []), rows) for name, rows in after.sections.items()}
    return Patch(base, _base_digest(base_text), digest(text), sections, dict(after.scalars))


def applied(base_text: str, patch: Patch) -> str:
    """Apply ``patch`` to ``base_text`` and return the resulting text.

    Raises:
        RulesetError: ``base-differs``: ``base_text`` has another digest than the patch states;
            ``patch-of-patch``: the base is a patch; ``digest-differs``: the result has another one.
    """
    if _base_digest(base_text) != patch.base_digest:
        raise RulesetError("base-differs", f"the ruleset {patch.base} is not the patch's base")
    if is_patch(base_text):
        raise RulesetError("patch-of-patch", f"the base {patch.base} is a patch itself")
    base = _base_rows(base_text).sections
    sections: dict[str, list[bytes]] = {}
    for name, edits in patch.sections.items():
        there, rows = base.get(name, []), sections.setdefault(name, [])
        for edit in edits:
            rows += there[edit.start : edit.start + edit.count]
            rows += map(bytes, edit.rows)
    text = RulesetRows(sections, patch.scalars).text()
    if digest(text) != patch.digest:
        raise _another(patch.base)
    return text


#: Digest, and rows, of the last patch's base, which most often is the next one's, too.
_base_digest, _base_rows = lru_cache(maxsize=1)(digest), lru_cache(maxsize=1)(RulesetRows.of)


def _another(base: RulesetId) -> RulesetError:
    return RulesetError("digest-differs", f"a patch of {base} makes another ruleset")


def _edits(base: list[bytes], rows: list[bytes]) -> tuple[Edit, ...]:
    """Return a patch's edits that turn ``base`` into ``rows`` and copy as many rows as possible."""
    places = {row: place for place, row in enumerate(base)}
    found: list[Edit] = []
    start = end = 0
    new: list[Raw] = []
    for row in rows:
        if not new and end < len(base) and base[end] == row:
            end += 1
        elif row in places:
            found.append(Edit(start, end - start, tuple(new)))
            start, new = places[row], []
            end = start + 1
        else:
            new.append(Raw(row))
    found.append(Edit(start, end - start, tuple(new)))
    return tuple(edit for edit in found if edit.count or edit.rows)
