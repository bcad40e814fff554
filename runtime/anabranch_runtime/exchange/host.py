"""Identity of hosts; a host is the executors that share a cache directory.

A file in the directory contains the host's random name, chosen when the directory was created. So a
host is recognised after a restart, and executors that share no directory are separate hosts, even
on one machine.

A *site* is a group of hosts, such as a data centre. An executor's site is named by its environment
variable ``ANABRANCH_SITE``; the default is its machine's name.
"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

from anabranch_runtime.errors import StateError

#: The variable that names an executor's site.
SITE = "ANABRANCH_SITE"


def host_id(cache: Path) -> str:
    """Return the name of the host with the directory ``cache``, which is created if missing.

    Raises:
        StateError: ``no-cache-directory``: the directory can't be created or written to.
    """
    path = cache / "host"
    try:
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            drawn = cache / f"host.{uuid.uuid4().hex}"
            drawn.write_text(uuid.uuid4().hex[:12])
            try:
                # A hard link fails if the name exists, so one of several starting tasks chooses it.
                path.hardlink_to(drawn)
            except FileExistsError:
                pass
            finally:
                drawn.unlink()
        return path.read_text()
    except OSError as cause:
        raise unusable(cache, cause) from cause


def site() -> str:
    """Return the site of this process's host, from its environment."""
    return os.environ.get(SITE) or socket.gethostname()


def unusable(cache: Path, cause: OSError) -> StateError:
    """Return the error for a directory that can't be used as a host's cache."""
    return StateError(
        "no-cache-directory",
        f"{cache} can't be used as an executor's cache: {cause}",
        remedy="name a directory that executors may write with --cache-directory "
        "(ANABRANCH_CACHE_DIRECTORY)",
    )
