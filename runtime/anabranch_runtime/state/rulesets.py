"""The rulesets that a state goes by, kept beside it.

A ruleset is published through Redis and never changes. Before a batch is begun by one, the driver
keeps it in ``rulesets/<epoch>.json``, a revision in ``rulesets/<epoch>.<revision>.json``; tasks
read it there. So what has been chosen can be repeated
whatever has become of Redis, and a Redis that publishes something else under the same number is
noticed.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.control import fetch_ruleset, read_ruleset
from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.documents import Kind, canonical, read_document
from anabranch_runtime.storage.durable import durable

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch_contract.plans.ruleset import Ruleset
    from anabranch_runtime.control import Control

KIND = Kind("ruleset", "ruleset", 1)
#: Rulesets kept besides those in use.
SPARE = 2

_LOG = structlog.get_logger("anabranch.runtime")


class Rulesets:
    """The rulesets of one state directory, with Redis behind them."""

    def __init__(self, root: Path, control: Control) -> None:
        self._durable = durable(root)
        self._folder = root / "rulesets"
        self._control = control
        self._known: dict[RulesetId, Ruleset] = {}

    def get(self, name: RulesetId) -> Ruleset:
        """The ruleset that ``name`` is the id of, kept from now on.

        Raises:
            PipelineError: ``no-ruleset``: it is neither here nor in Redis.
        """
        found = self._known.get(name)
        if found is None:
            body = self._body(name)
            if body is None:
                text = self._control.ruleset_text(name)
                self._durable.write(_path(self._folder, name), KIND, json.loads(text))
                found = read_ruleset(text, name)
            else:
                found = rulesets.from_json(body)
            self._known[name] = found
        return found

    def keep(self, ruleset: Ruleset, text: str) -> None:
        """Keep ``ruleset``, of which ``text`` is the document, from now on."""
        self._durable.write(_path(self._folder, ruleset.id), KIND, json.loads(text))
        self._known[ruleset.id] = ruleset

    def restore(self, used: Collection[RulesetId]) -> None:
        """Give Redis the rulesets that it has lost; of revisions those that are ``used``: another
        may have been published since under the number of one that was never taken.

        Raises:
            StateError: ``foreign-ruleset``: what it has under one of the numbers is another one.
        """
        for path in self._paths():
            name = RulesetId.parse(path.stem)
            body = self._body(name) if name in used or not name.revision else None
            if body is None:
                continue
            published = self._control.publish(name, json.dumps(body))
            if canonical(json.loads(published)) != canonical(body):
                raise StateError(
                    "foreign-ruleset",
                    f"Redis has another ruleset {name} than the one that {path} was made from",
                    remedy="restore Redis to what it was, or start again with an empty state "
                    "directory and another namespace",
                )

    def forget(self, used: Collection[RulesetId]) -> None:
        """Keep those ``used`` and the newest few only."""
        for path in self._paths()[:-SPARE]:
            name = RulesetId.parse(path.stem)
            if name not in used:
                self._durable.remove([path])
                self._known.pop(name, None)

    def _body(self, name: RulesetId) -> dict[str, Any] | None:
        path = _path(self._folder, name)
        if not path.exists():
            return None
        try:
            body: dict[str, Any] = read_document(path, KIND)
        except StateError as error:
            if error.code == "unknown-version":
                raise
            _LOG.error("kept ruleset passed over", error=str(error))
            return None
        return body

    def _paths(self) -> list[Path]:
        found = self._folder.glob("*.json") if self._folder.is_dir() else ()
        named = (p for p in found if p.stem.replace(".", "", 1).isdecimal())
        return sorted(named, key=lambda p: RulesetId.parse(p.stem))


def kept_ruleset(root: Path, name: RulesetId) -> Ruleset | None:
    """The ruleset that ``name`` is the id of, if the state directory has it.

    Raises:
        StateError: the file is damaged or of a later release.
    """
    path = _path(root / "rulesets", name)
    return rulesets.from_json(read_document(path, KIND)) if path.exists() else None


@lru_cache(maxsize=8)
def task_ruleset(root: str, url: str, namespace: str, name: RulesetId) -> Ruleset:
    """The ruleset that ``name`` is the id of, as a task gets it: from the state directory, or
    (should the file not have reached this host) from Redis.

    Raises:
        PipelineError: ``no-ruleset``: it did not come for a while.
        StateError: the file is damaged or of a later release.
    """
    kept = kept_ruleset(Path(root), name)
    return fetch_ruleset(url, namespace, name) if kept is None else kept


def _path(folder: Path, name: RulesetId) -> Path:
    revision = f".{name.revision}" if name.revision else ""
    return folder / f"{name.epoch:08d}{revision}.json"
