"""A state of an earlier release, whose main query read Spark's sources itself.

Its checkpoint has their offsets and logs. :func:`take_over` makes the checkpoint of an ingest query
from them, so that each source is read on from where the state ends. Where a batch had been begun,
it must be repeated with the same rows: the ingest query is given the end of that batch too, repeats
it, and what it lands is put into the journal in the place of the source (:func:`begun_anew`).
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING
from uuid import uuid4

from anabranch_runtime.sources.ingest.checkpoints import offset_entries
from anabranch_runtime.state.checkpoint import COMMIT, LANDED, OURS, Repair, perform, source_offsets
from anabranch_runtime.storage.documents import sync_directory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def take_over(
    main: Path, home: Path, source: str, batch: int, reached: str | None, begun: str | None
) -> None:
    """Make the checkpoint in ``home`` from what an earlier release's main query has of ``source``,
    if it has anything and there is no such folder yet.

    Args:
        main: the main query's checkpoint.
        home: the source's folder.
        source: the source's name in both.
        batch: the last batch that the state has.
        reached: Spark's text of the offsets it ends at.
        begun: that of the next batch, if it has been begun.
    """
    known = source in source_offsets(reached)
    if home.exists() or not (known or source in source_offsets(begun)):
        return
    partial = home.with_name(f".{source}")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "checkpoint").mkdir(parents=True)
    logs = main / "sources" / source
    if logs.is_dir():
        shutil.copytree(logs, partial / "checkpoint" / "sources" / source)
    entries = {"metadata": json.dumps({"id": str(uuid4())})}
    if known and reached is not None:
        entries |= {f"commits/{batch}": COMMIT} | offset_entries(batch, _only(reached, source))
    if begun is not None and source in unfinished(reached, begun):
        entries[f"offsets/{batch + 1 if known else 0}"] = _only(begun, source)
    perform(partial / "checkpoint", Repair(entries))
    partial.rename(home)
    sync_directory(home.parent)


def unfinished(reached: str | None, begun: str | None) -> frozenset[str]:
    """The sources of Spark's that a batch which was begun by an earlier release is to bring rows
    of, by their names in the main query.
    """
    before, after = source_offsets(reached), source_offsets(begun)
    return frozenset(n for n in after.keys() - OURS if after[n] != before.get(n))


def begun_anew(begun: str, landed: Mapping[str, int]) -> str:
    """The text ``begun`` of a batch's offsets, with landed batches in the place of sources.

    Args:
        landed: source -> how many landed batches the batch reads.
    """
    version, metadata, *lines = begun.rstrip("\n").split("\n")
    kept = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    feeds = json.loads(kept.get("feeds", "{}"))
    feeds |= {LANDED + source: [count, 0] for source, count in landed.items() if count}
    ours = {name: rest for name, rest in kept.items() if name in OURS}
    ours["feeds"] = json.dumps(feeds)
    return "\n".join((version, metadata, *(f"{name}:{rest}" for name, rest in ours.items())))


def _only(text: str, source: str) -> str:
    """A text of offsets with one source alone."""
    version, metadata, *lines = text.rstrip("\n").split("\n")
    return "\n".join((version, metadata, *(x for x in lines if x.startswith(f"{source}:"))))
