#!/bin/sh
# Exit 0 if this machine has Python 3.11+ and Java 17+; else say in one line what to install.
# Usage: check-prerequisites.sh [PYTHON]
set -u
python=${1:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "anabranch needs Python 3.11 or newer ($python is not): install it and run 'make PYTHON=/path/to/python3'." >&2
    exit 1
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "anabranch needs Python's venv module: install it (Debian and Ubuntu: apt-get install python3-venv)." >&2
    exit 1
fi

# The same choice that Spark makes: JAVA_HOME first, then the path.
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
# 'openjdk version "17.0.15" ...' gives 17; the old style "1.8.0" gives 1. Other lines may precede it.
major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
if [ "${major:-0}" -lt 17 ]; then
    echo "anabranch needs Java 17 or newer for Spark (found: ${major:-none}): install a JRE (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME." >&2
    exit 1
fi
