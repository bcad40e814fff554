"""The rulesets in the state directory.

A ruleset is published through Redis and never changes. Before its first batch, the driver stores it
in ``rulesets/<epoch>.json``, or a revision in ``rulesets/<epoch>.<revision>.json``, where tasks
read it. So a batch can be repeated without Redis, and it is noticed if another ruleset is published
under the same number.

A file has the whole ruleset, or a patch of the ruleset in another file, its base
(:mod:`~.plans.patches`). The driver chooses the form, whatever form Redis has. A base is written
before its patches, and kept as long as they are.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

import structlog

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans import patches
from anabranch_contract.plans.patches import WORTH, difference, is_patch
from anabranch_contract.plans.rows import read_ruleset
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.decoding import patched
from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.documents import Kind, Spelling, canonical, read_text
from anabranch_runtime.storage.durable import durable

KIND = Kind("ruleset", "ruleset")
#: Number of rulesets that are kept in addition to rulesets in use.
SPARE = 2

_LOG = structlog.get_logger("anabranch.runtime")


class Rulesets:
    """The rulesets of one state directory; missing ones are fetched from Redis."""

    def __init__(self, root: Path, control: Control) -> None:
        self._durable = durable(root)
        self._folder = root / "rulesets"
        self._control = control
        self._known: dict[RulesetId, Ruleset] = {}
        #: The last ruleset that was written in full: its id and text.
        self._base: tuple[RulesetId, str] | None = None
        #: Ruleset -> the one whose file is needed to read it: its base, or itself.
        self._needs: dict[RulesetId, RulesetId] = {}

    def get(self, name: RulesetId) -> Ruleset:
        """Return the ruleset with the id ``name``, and store it in the state directory.

        Raises:
            PipelineError: ``no-ruleset``: neither the state directory nor Redis has it.
        """
        found = self._known.get(name)
        if found is None:
            text = self._text(name)
            if text is None:
                text = self._control.ruleset_text(name)
                self.keep(read_ruleset(text, name), text)
            else:
                self._known[name] = read_ruleset(text, name)
            found = self._known[name]
        return found

    def keep(self, ruleset: Ruleset, text: str) -> None:
        """Store ``ruleset``, whose JSON is ``text``, in the state directory."""
        name = ruleset.id
        short = None if self._base is None else _shorter(*self._base, text)
        # A revision can't be a base: if it is never taken, its number may be published again.
        if short is None and not name.revision:
            self._base = name, text
        self._durable.write(_path(self._folder, name), KIND, Spelling(short or text))
        self._needs[name] = name if short is None or self._base is None else self._base[0]
        self._known[name] = ruleset

    def restore(self, used: Collection[RulesetId]) -> None:
        """Write the stored rulesets that Redis has lost back to it; revisions only if ``used``,
        since the number of a revision that was never taken may be published again.

        Raises:
            StateError: ``foreign-ruleset``: Redis has a different ruleset under one of the numbers.
        """
        for path in self._paths():
            name = RulesetId.parse(path.stem)
            text = self._text(name) if name in used or not name.revision else None
            if text is None:
                continue
            published = self._control.publish(name, text)
            if published != text and _spelled(published) != _spelled(text):
                raise StateError(
                    "foreign-ruleset",
                    f"Redis has another ruleset {name} than the one that {path} was made from",
                    remedy="restore Redis from its backup, or start again with an empty state "
                    "directory and another namespace",
                )

    def forget(self, used: Collection[RulesetId]) -> None:
        """Delete stored rulesets but ``used`` ones, the newest, and bases of these and the next."""
        names = [RulesetId.parse(path.stem) for path in self._paths()]
        staying = {*names[-SPARE:], *used}
        staying |= {self._base_of(name) for name in names if name in staying}
        if self._base is not None:
            staying.add(self._base[0])
        # In reverse order, so that patches are deleted before their bases.
        for name in reversed(names):
            if name not in staying:
                self._durable.remove([_path(self._folder, name)])
                self._known.pop(name, None)
                self._needs.pop(name, None)

    def _text(self, name: RulesetId) -> str | None:
        """Return the stored ruleset's text; None if it is missing or unreadable."""
        path = _path(self._folder, name)
        if not path.exists():
            return None
        try:
            return _kept_text(path)
        except (StateError, RulesetError) as error:
            if error.code == "unknown-version":
                raise
            _LOG.error("kept ruleset passed over", error=str(error))
            return None

    def _base_of(self, name: RulesetId) -> RulesetId:
        """Return the ruleset in whose file the base of ``name`` is: another one, or itself."""
        if name not in self._needs:
            self._needs[name] = name
            try:
                text = read_text(_path(self._folder, name), KIND)
                self._needs[name] = patches.loads(text).base if is_patch(text) else name
            except (StateError, RulesetError) as error:
                _LOG.error("kept ruleset passed over", error=str(error))
        return self._needs[name]

    def _paths(self) -> list[Path]:
        found = self._folder.glob("*.json") if self._folder.is_dir() else ()
        named = (p for p in found if p.stem.replace(".", "", 1).isdecimal())
        return sorted(named, key=lambda p: RulesetId.parse(p.stem))


def kept_ruleset(root: Path, name: RulesetId) -> Ruleset | None:
    """Return the ruleset with the id ``name``; None if the state directory lacks it.

    Raises:
        StateError: its file or its base's file is damaged or of another release.
        RulesetError: the file is a patch of another base.
    """
    path = _path(root / "rulesets", name)
    return read_ruleset(_kept_text(path), name) if path.exists() else None


@lru_cache(maxsize=8)
def task_ruleset(root: str, url: str, namespace: str, name: RulesetId) -> Ruleset:
    """Return the ruleset with the id ``name`` in a task: from the state directory or, if the file
    has not reached this host, from Redis.

    Raises:
        PipelineError: ``no-ruleset``: neither has it, even after a while.
        StateError, RulesetError: as :func:`kept_ruleset`.
    """
    kept = kept_ruleset(Path(root), name)
    return fetch_ruleset(url, namespace, name) if kept is None else kept


def _kept_text(path: Path) -> str:
    """Return the ruleset's text from the file at ``path``; a patch is applied to its base."""
    text = read_text(path, KIND)
    if not is_patch(text):
        return text
    patch = patches.loads(text)
    return patched(patch, lambda: read_text(_path(path.parent, patch.base), KIND))


def _shorter(base: RulesetId, base_text: str, text: str) -> str | None:
    """Return a patch that turns ``base`` into ``text``; None if it would not be much shorter."""
    try:
        short = difference(base, base_text, text).dumps()
    except RulesetError:
        return None
    return short if len(short) <= WORTH * len(text) else None


def _spelled(text: str) -> str:
    return canonical(json.loads(text))


def _path(folder: Path, name: RulesetId) -> Path:
    revision = f".{name.revision}" if name.revision else ""
    return folder / f"{name.epoch:08d}{revision}.json"
