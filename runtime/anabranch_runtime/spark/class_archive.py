"""Archive of the classes that Spark's JVM loads; at a start, the JVM maps it into memory.

This is Java's application class data sharing; ``make_class_archive`` makes the archive. Without it
a start of the runtime takes some seconds longer. An archive fits one installation of Java and of
Spark, which its file name identifies; the JVM ignores an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
from pathlib import Path

#: Environment variable with the folder of archives; default: below the user's cache directory.
FOLDER_VARIABLE = "ANABRANCH_CLASS_ARCHIVE"
#: Options that suppress the JVM's messages about archives, which would go to standard output.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
#: Options to map an archive at the address that it was made for: so JVMs of a machine share 90 MB
#: of memory, which would be copied if the archive were relocated.
IN_PLACE = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
)


def cache_folder() -> Path:
    """Return anabranch's folder in the user's cache directory, for files that can be recreated."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anabranch"


def archive_path() -> Path:
    """Return the path of the archive that fits this machine's Java and the installed Spark."""
    given = os.environ.get(FOLDER_VARIABLE)
    folder = Path(given) if given else cache_folder()
    return folder / f"classes-{_fingerprint()}.jsa"


def archive_options() -> str:
    """Return the JVM options to use the archive; empty if there is no archive."""
    path = archive_path()
    # The options are split at white space, so no path may contain any.
    if not path.is_file() or any(c.isspace() for c in str(path)):
        return ""
    return f" -XX:SharedArchiveFile={path} {IN_PLACE} {QUIET}"


def _fingerprint() -> str:
    """Return a digest of the machine's Java, and of Spark's version and location."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    java = java.resolve()
    made = java.stat().st_mtime_ns if java.exists() else 0
    spark = importlib.metadata.distribution("pyspark")
    parts = (str(java), made, spark.version, str(spark.locate_file("pyspark")))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
