"""An archive of the classes that Spark's JVM loads: a start maps them instead of parsing them.

This is Java's application class data sharing; ``make_class_archive`` makes the archive. Without one
everything works, and a start of the runtime takes some seconds longer. The archive belongs to one
Java and one Spark: under others it has another name, and the JVM ignores one that does not fit.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
from pathlib import Path

#: The folder of archives; by default below the user's cache directory.
FOLDER_VARIABLE = "ANABRANCH_CLASS_ARCHIVE"
#: The JVM's messages about archives go to standard output, and have no remedy.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
#: Map an archive at its own address: 90 MB of it then stay shared by the JVMs of a machine, where
#: relocation would copy them.
IN_PLACE = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
)


def cache_folder() -> Path:
    """Return the folder below the user's cache directory for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anabranch"


def archive_path() -> Path:
    """Return the path of the archive that fits this machine's Java and the installed Spark."""
    given = os.environ.get(FOLDER_VARIABLE)
    folder = Path(given) if given else cache_folder()
    return folder / f"classes-{_fingerprint()}.jsa"


def archive_options() -> str:
    """Return the JVM options that use the archive; none where there is no archive."""
    path = archive_path()
    # An option's value is split at white space.
    if not path.is_file() or any(c.isspace() for c in str(path)):
        return ""
    return f" -XX:SharedArchiveFile={path} {IN_PLACE} {QUIET}"


def _fingerprint() -> str:
    """Name what an archive depends on: the Java that is found, and Spark's version and place."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    java = java.resolve()
    made = java.stat().st_mtime_ns if java.exists() else 0
    spark = importlib.metadata.distribution("pyspark")
    parts = (str(java), made, spark.version, str(spark.locate_file("pyspark")))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
