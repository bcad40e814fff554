"""Repair of an ingest query's Spark checkpoint, to agree with the batches that it has written.

The last batch on disk (landed batch) is authoritative: its document has its end offsets, and the
lengths and checksums that Spark's logs of the source had then. Entries that Spark's checkpoint has
lost are restored (Spark does not sync them, so a power failure can lose them). Entries after the
last landed batch may be removed, since their input has not landed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from anabranch_runtime.errors import SourceError, StateError
from anabranch_runtime.recovery.logs import check_logs
from anabranch_runtime.sources.ingest.landing import Landed
from anabranch_runtime.storage.documents import sync_path, write_durably

_ANEW = (
    "restore the state directory from a backup; or delete the stream and register it again, which"
    " reads the source from its beginning"
)
#: Text of an entry of Spark's commit log.
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True, slots=True)
class _Seen:
    """The entries of a Spark checkpoint: batch -> text of its entry, None if unreadable.

    ``metadata`` is None if it does not exist, and empty if it is unreadable.
    """

    offsets: Mapping[int, str | None] = field(default_factory=dict)
    commits: Mapping[int, str | None] = field(default_factory=dict)
    metadata: str | None = None


def mend(home: Path, last: Landed | None, reached: int, number: int) -> None:
    """Make Spark's checkpoint in ``home`` agree with ``last``, the newest landed batch, before the
    ingest query starts.

    Args:
        home: the source's folder.
        last: the newest landed batch; None: none.
        reached: the number of the landed batch that the pipeline reads next.
        number: the number of the next batch to land.

    Raises:
        SourceError: ``ingest-lost``: landed batches that the pipeline has read are missing.
            ``damaged-log``: Spark's record of the files read is lost.
    """
    if reached > number:
        raise SourceError(
            "ingest-lost",
            f"{home} has {number} landed batches, and {reached} have been read",
            remedy=_ANEW,
        )
    if last is None:
        return
    try:
        check_logs(home, last.logs)
    except StateError as cause:
        raise SourceError(cause.code, f"{home}: {cause.message}", remedy=_ANEW) from cause
    checkpoint = home / "checkpoint"
    seen = _look(checkpoint)
    oldest, newest = min(seen.offsets, default=0), max(seen.offsets, default=-1)
    kept = seen.offsets.get(last.batch) == last.offsets or oldest > last.batch
    whole = (
        kept
        and newest >= last.batch
        and None not in seen.offsets.values()
        and all(_is_commit(text) for text in seen.commits.values())
        and _is_json(seen.metadata)
    )
    if whole:
        return
    write = {f"commits/{last.batch}": COMMIT} | offset_entries(last.batch, last.offsets)
    if not _is_json(seen.metadata):
        write["metadata"] = json.dumps({"id": str(uuid4())})
    remove = {f"offsets/{b}" for b in seen.offsets} | {f"commits/{b}" for b in seen.commits}
    _perform(checkpoint, write, sorted(remove - write.keys()))


def offset_entries(batch: int, text: str) -> dict[str, str]:
    """Return the last entries of an offset log up to ``batch``; Spark reads the last two."""
    return {f"offsets/{b}": text for b in range(max(batch - 1, 0), batch + 1)}


def _look(checkpoint: Path) -> _Seen:
    """Read a Spark checkpoint's offset log, commit log and metadata."""
    metadata = checkpoint / "metadata"
    return _Seen(
        _log_entries(checkpoint / "offsets"),
        _log_entries(checkpoint / "commits"),
        (_text(metadata) or "") if metadata.exists() else None,
    )


def offsets_of(checkpoint: Path, batch: int) -> str | None:
    """Return the entry of a batch in Spark's offset log, as text; None if there is none."""
    return _text(checkpoint / "offsets" / str(batch))


def source_offsets(text: str | None) -> dict[str, Any]:
    """Return source name -> its offset, parsed from an entry of Spark's offset log; empty for None.

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


def _perform(checkpoint: Path, write: Mapping[str, str], remove: Sequence[str]) -> None:
    """Write files of a Spark checkpoint and delete others, by name; return once durable."""
    # Checksum files of Spark's local file system would not match any more, so they are deleted.
    for name in (*remove, *write):
        path = checkpoint / name
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    for name, text in write.items():
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, text)
    for folder in {(checkpoint / name).parent for name in remove}:
        sync_path(folder)


def _log_entries(folder: Path) -> dict[int, str | None]:
    if not folder.is_dir():
        return {}
    return {int(p.name): _text(p) for p in folder.iterdir() if p.name.isdecimal()}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _is_commit(text: str | None) -> bool:
    """Whether Spark could read ``text`` as an entry of its commit log."""
    first, _, rest = (text or "").partition("\n")
    return first[:1] == "v" and first[1:].isdecimal() and _is_json(rest)


def _is_json(text: str | None) -> bool:
    """Whether ``text``, the content of a checkpoint's file, is a JSON object."""
    try:
        return isinstance(json.loads(text or ""), dict)
    except ValueError:
        return False
