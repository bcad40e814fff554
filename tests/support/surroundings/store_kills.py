"""``python -m tests.support.surroundings.store_kills REDIS FOLDER``: a pipeline with an object
store, to be killed. It continues from the folders ``state``, ``results`` and ``objects`` (the
object store) in FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.worlds.random_cuts import RandomCuts

#: Number of rows of the source: enough batches for a kill at every step.
TOTAL = 60
#: Bytes of packs in the local cache: about two batches.
CACHE = 8192


def log(url: str, folder: Path) -> RandomCuts:
    """Run the pipeline."""
    objects = (folder / "objects").as_uri()
    settings = {"object_store": objects, "cache_size": CACHE}
    return RandomCuts(url, folder, total=TOTAL, settings=settings)


if __name__ == "__main__":
    found = log(sys.argv[1], Path(sys.argv[2]))
    found.run(found.start())
