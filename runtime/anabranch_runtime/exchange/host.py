"""Identity of a host: the executors that share a cache directory.

The directory has a file with a random name, drawn when it was made. So a host is recognised at its
next start, and executors that share no directory are separate hosts, even on one machine.

A *site* is a group of hosts, a data centre say. An executor is at the site named by the variable
``ANABRANCH_SITE`` of its environment, or else at the site with its machine's name.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
import uuid
from collections.abc import Collection
from pathlib import Path

from anabranch_runtime.errors import StateError

#: The variable that names an executor's site.
SITE = "ANABRANCH_SITE"


def host_id(cache: Path) -> str:
    """The name of the host whose cache is ``cache``, which is made if it is not there.

    Raises:
        StateError: ``no-cache-directory``: it can't be made or written.
    """
    path = cache / "host"
    try:
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            drawn = cache / f"host.{uuid.uuid4().hex}"
            drawn.write_text(uuid.uuid4().hex[:12])
            try:
                # Of several tasks that begin at once one gives the name.
                path.hardlink_to(drawn)
            except FileExistsError:
                pass
            finally:
                drawn.unlink()
        return path.read_text()
    except OSError as cause:
        raise unusable(cache, cause) from cause


def site() -> str:
    """The site that this process is at."""
    return os.environ.get(SITE) or socket.gethostname()


def unusable(cache: Path, cause: OSError) -> StateError:
    """The error of a directory that can't be a cache."""
    return StateError(
        "no-cache-directory",
        f"{cache} can't be used as an executor's cache: {cause}",
        remedy="name a directory that executors may write with --cache-directory "
        "(ANABRANCH_CACHE_DIRECTORY)",
    )


#: Seconds since its last use after which a pack that is not live may go: a pack in use is younger.
AGE = 600.0


def sweep(cache: Path, needed: Collection[str], spent: Collection[str], batch: int) -> None:
    """Delete the unneeded files of a cache.

    Manifests before ``batch`` go. Of other files that are not ``needed``, packs that are ``spent``
    or older than the batch go at once; all others (new packs of merges, staged results, input) go
    when they have not been used for a while.
    """
    for path in cache.glob("manifest/*.json"):
        if path.stem.isdecimal() and int(path.stem) < batch:
            path.unlink(missing_ok=True)
    now = time.time()
    for pattern in ("segments/*", "staging/*", "recordings/*", "ingest/*/*"):
        for path in cache.glob(pattern):
            name = path.relative_to(cache).as_posix()
            if name in needed:
                continue
            number = path.name.partition("-")[0] if path.suffix == ".pack" else ""
            gone = name in spent or (number.isdecimal() and int(number) < batch)
            try:
                if not gone and now - path.stat().st_mtime <= AGE:
                    continue
            except FileNotFoundError:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
