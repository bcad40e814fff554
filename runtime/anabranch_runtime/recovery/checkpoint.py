"""Repair of Spark's checkpoint, so that it agrees with the state before a query starts.

Spark keeps two logs: ``offsets`` (the end offsets of batch ``n``, written before it runs) and
``commits`` (that it has run). From their newest entries Spark derives the next batch. But the state
is authoritative: it has batches up to ``next_batch - 1``, and its journal has the input of every
batch begun since the oldest kept manifest. So after a repair:

* offsets up to and including the last batch of the state equal the state's;
* the next batch has its offsets from the journal if it was begun; else it has none, and Spark plans
  it again (none of its effects is visible);
* the next batch has no commit, and later batches have neither offsets nor commits: after a rollback
  they run again. If Spark plans one of them differently than before, the driver detects it and
  puts the offsets in place once more (:class:`RewoundError`).

A checkpoint that is behind the state is not repaired: it may have lost records of Spark's sources
too, and their input would be read twice. One exception: a missing checkpoint of a pipeline with an
object store is rebuilt if only our own sources, which keep no records in it, are used. The decision
is a pure function of the logs' contents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from anabranch_runtime.errors import StateError
from anabranch_runtime.recovery.journal import Journal
from anabranch_runtime.storage.documents import sync_directory, write_durably

_BACKUP = "restore state, checkpoint and results from one backup"
_ANEW = "start again from the sources with an empty state directory and another namespace"


#: Sources of the main query that keep only offsets in a checkpoint (``sources``).
OURS = frozenset(("recorded", "feeds"))
#: Prefix of the keys of landed feeds in the offset of ``feeds``.
LANDED = "spark:"
#: Key in the offset of ``feeds`` for the number of the last batch that was planned only to compute
#: withheld results.
OWED = "+"
#: Spark's text of an entry of a commit log.
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True, slots=True)
class Seen:
    """The entries of a checkpoint: batch -> text of its entry, None if unreadable.

    ``metadata`` is None if it does not exist, and empty if it is unreadable.
    """

    offsets: Mapping[int, str | None] = field(default_factory=dict)
    commits: Mapping[int, str | None] = field(default_factory=dict)
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """Changes of a checkpoint; names are relative to it.

    Attributes:
        write: file name -> text to write. ``remove``: names of files to delete.
        back: number of batches that Spark has committed and that will run again.
    """

    write: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    back: int = 0


def look(checkpoint: Path) -> Seen:
    """Read the checkpoint's offset log, commit log and metadata."""
    metadata = checkpoint / "metadata"
    return Seen(
        _entries(checkpoint / "offsets"),
        _entries(checkpoint / "commits"),
        (_text(metadata) or "") if metadata.exists() else None,
    )


def offsets_of(checkpoint: Path, batch: int) -> str | None:
    """Return Spark's text of a batch's offsets; None if the log has no such entry."""
    return _text(checkpoint / "offsets" / str(batch))


def source_offsets(text: str | None) -> dict[str, Any]:
    """Return each source's offset, by name, in Spark's text of offsets; empty for None.

    Raises:
        StateError: ``unknown-offsets``: the text is not in the format with source names.
    """
    if text is None:
        return {}
    try:
        version, _, *sources = text.rstrip("\n").split("\n")
        if version != "v2":
            raise ValueError(version)
        pairs = [line.split(":", 1) for line in sources]
        return {name: json.loads(offset) for name, offset in pairs if offset != "-"}
    except ValueError:
        raise StateError(
            "unknown-offsets",
            f"Spark's checkpoint has offsets that can't be read: {text[:200]!r}",
            remedy=f"run the release of Spark that wrote them, or {_ANEW}",
        ) from None


def brings_nothing(before: str | None, upto: str | None) -> bool:
    """Whether a batch between two texts of offsets was planned only to compute owed results."""
    if before is None or upto is None:
        return False
    first, last = (
        {name: _without_owed(offset) for name, offset in source_offsets(text).items()}
        for text in (before, upto)
    )
    return first == last


def _without_owed(offset: Any) -> Any:
    if not isinstance(offset, dict):
        return offset
    return {feed: at for feed, at in offset.items() if feed != OWED}


def planned_at(text: str | None) -> int | None:
    """Return the time at which Spark planned a batch, by its text of offsets, in microseconds since
    1970; None if the text has no time.
    """
    try:
        metadata = json.loads((text or "").split("\n")[1])
        return int(metadata["batchTimestampMs"]) * 1000
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def decide(
    seen: Seen,
    next_batch: int,
    reached: str | None,
    choices: Journal,
    *,
    replay: bool,
    anew: bool = False,
) -> Repair:
    """Decide the repairs that make a checkpoint agree with a state.

    An empty checkpoint is rebuilt if the last argument allows it; else it is an error.

    Args:
        seen: contents of the checkpoint.
        next_batch: the state's next batch.
        reached: the text of the offsets of ``next_batch - 1``; None if the state has none.
        choices: the state's journal.
        replay: whether a lost choice would be repeated identically (step mode).

    Raises:
        StateError: checkpoint and state can't be made to agree: ``checkpoint-lost``,
            ``checkpoint-behind``, ``state-behind``, ``damaged-journal``.
    """
    last = next_batch - 1
    committed = max(seen.commits, default=-1)
    empty = not seen.offsets and not seen.commits
    if next_batch and empty and anew:
        _check_ours(last, reached, choices)
    elif next_batch and empty:
        raise StateError(
            "checkpoint-lost",
            f"the state has {next_batch} batches, Spark's checkpoint beside it is empty",
            remedy=f"{_BACKUP}, or {_ANEW}",
        )
    if next_batch and reached is None and last not in seen.offsets:
        raise StateError(
            "checkpoint-behind",
            f"the state has batch {last}, Spark's checkpoint has not",
            remedy=f"{_BACKUP}, or {_ANEW}",
        )
    unknown = [b for b in range(next_batch, committed + 1) if _begun(choices, b) is None]
    if unknown:
        raise StateError(
            "state-behind",
            f"Spark has committed batches up to {committed}, the last whole state is that before "
            f"batch {next_batch}, and with what batch {unknown[0]} was begun is not known",
            remedy=f"{_BACKUP}, or {_ANEW}",
        )
    lost = choices.damage is not None or (next_batch > 0 and (choices.newest or 0) < last)
    if lost and not replay and (next_batch in seen.offsets or (empty and anew)):
        raise StateError(
            "damaged-journal",
            f"choice.json is damaged or missing, and batch {next_batch} may have been begun",
            remedy=f"{_BACKUP}; or, if what that batch has published may be replaced by results of "
            f"other tuples, delete choice.json and checkpoint/offsets/{next_batch}",
        )
    write, remove = {}, []
    known = {b: _begun(choices, b) for b in range(max(next_batch - 2, 0), last)}
    for batch, text in {**known, last: reached}.items():
        if text is not None and seen.offsets.get(batch) != text:
            write[f"offsets/{batch}"] = text
    text = _begun(choices, next_batch)
    if text is not None and seen.offsets.get(next_batch) != text:
        write[f"offsets/{next_batch}"] = text
    kept = last if text is None else next_batch
    remove += [f"offsets/{b}" for b in seen.offsets if b > kept]
    remove += [f"commits/{b}" for b, t in seen.commits.items() if b > last or not is_commit(t)]
    if not is_json(seen.metadata):
        if write or any(b <= kept for b in seen.offsets):
            # Without metadata Spark does not start with existing entries.
            write["metadata"] = json.dumps({"id": str(uuid5(NAMESPACE_OID, reached or ""))})
        elif seen.metadata is not None:
            remove.append("metadata")
    return Repair(write, tuple(sorted(remove)), max(committed - last, 0))


def _check_ours(last: int, reached: str | None, choices: Journal) -> None:
    """Check that a missing checkpoint can be rebuilt.

    Raises:
        StateError: ``checkpoint-lost``.
    """
    known = source_offsets(reached)
    landed = [key for key in known.get("feeds", {}) if key.startswith(LANDED)]
    foreign = sorted({*known, *landed} - OURS)
    if foreign:
        names = ", ".join(foreign)
        raise StateError(
            "checkpoint-lost",
            f"Spark's checkpoint is not here, and what the sources of {names} keep beside it is "
            "not in the object store",
            remedy="start where checkpoint and ingest folder are, or copy both from there into the "
            "state directory; "
            f"or {_ANEW}",
        )
    # Spark begins a batch at the end offsets of the batch before.
    if reached is None or (last > 0 and _begun(choices, last - 1) is None):
        raise StateError(
            "checkpoint-lost",
            f"Spark's checkpoint is not here, and the state does not have the offsets of batch "
            f"{last if reached is None else last - 1}",
            remedy=f"start where the checkpoint is; {_BACKUP}; or {_ANEW}",
        )


def perform(checkpoint: Path, repair: Repair) -> None:
    """Carry out a repair; returns once it is durable."""
    # Delete the checksum files that Spark's local file system has written: they would not match.
    for name in (*repair.remove, *repair.write):
        path = checkpoint / name
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    for name, text in repair.write.items():
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, text)
    for folder in {(checkpoint / name).parent for name in repair.remove}:
        sync_directory(folder)


def _begun(choices: Journal, batch: int) -> str | None:
    choice = choices.get(batch)
    return None if choice is None else choice.offsets


def _entries(folder: Path) -> dict[int, str | None]:
    if not folder.is_dir():
        return {}
    return {int(p.name): _text(p) for p in folder.iterdir() if p.name.isdecimal()}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def is_commit(text: str | None) -> bool:
    """Whether Spark would read ``text`` as an entry of its commit log."""
    first, _, rest = (text or "").partition("\n")
    return first[:1] == "v" and first[1:].isdecimal() and is_json(rest)


def is_json(text: str | None) -> bool:
    """Whether ``text`` is a JSON object."""
    try:
        return isinstance(json.loads(text or ""), dict)
    except ValueError:
        return False
