"""Fill in the results in the files of statements: ``python -m tests.sql [NAME ...]``; review them
as a diff.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import structlog

from tests.sql.files import DIALECTS, DOMAINS, files, read, write
from tests.sql.run import Written
from tests.sql.test_files import SEED
from tests.support.surroundings.redis import redis_url


def main(names: list[str]) -> int:
    """Fill in the results of the files ``names``; of all files if there are none."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with redis_url() as url:
        for path in (*files(), *files(DOMAINS), *files(DIALECTS)):
            if names and path.stem not in names:
                continue
            with tempfile.TemporaryDirectory() as folder:
                run = Written(Path(folder), url, SEED, read(path))
                run.play()
                write(path, run.answers())
            sys.stderr.write(f"{path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
