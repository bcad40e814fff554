"""Check of the Java program that Spark would start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from anabranch_client.doctor.findings import Finding, Verdict

#: The first release of Java on which Spark runs.
LEAST = 17
_SECONDS = 30.0
_VERSION = re.compile(r'version "((\d+)[^"]*)"')
_REMEDY = (
    f"install a Java runtime of version {LEAST} or newer (Debian and Ubuntu:"
    f" apt-get install openjdk-{LEAST}-jre-headless), or set JAVA_HOME"
)


def check_java(*, needed: bool = True) -> Finding:
    """Check for a Java that Spark can run on; ``needed``: whether Spark is installed."""
    bad = Verdict.FAIL if needed else Verdict.WARN
    home = os.environ.get("JAVA_HOME")
    # Spark also prefers JAVA_HOME to PATH.
    program = os.path.join(home, "bin", "java") if home else "java"
    path = shutil.which(program)
    if path is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "not found on the path"
        return Finding("Java", bad, where, _REMEDY)
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        return Finding("Java", bad, f"{path} does not run: {cause}", _REMEDY, {"path": path})
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        return Finding("Java", bad, f"{path} does not print its version", _REMEDY, {"path": path})
    facts = {"path": path, "version": match[1]}
    if int(match[2]) < LEAST:
        return Finding("Java", bad, f"{match[1]} ({path}) is too old", _REMEDY, facts)
    return Finding("Java", Verdict.OK, f"{match[1]} ({path})", facts=facts)
