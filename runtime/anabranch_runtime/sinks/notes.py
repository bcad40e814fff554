"""Documents that lie beside results: each there as a whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch_contract import codec

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, document: Any) -> None:
    """Write ``document`` to ``path`` in place of what is there; None: remove that.

    It is durable once the file system has been synced.
    """
    if document is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".new")
    staged.write_text(codec.dumps(document), encoding="utf-8")
    staged.replace(path)
