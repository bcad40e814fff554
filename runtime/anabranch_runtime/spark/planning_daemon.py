"""Daemon of the Python processes in which Spark plans sources, without needless tracebacks.

Spark's JVM closes the connections of workers that have been idle for a minute, as each start's are.
Spark names no module for these daemons, so the interpreter's script puts this one in the place of
``pyspark.daemon`` (``spark.interpreter``).
"""

from __future__ import annotations

import sys
import traceback
import types


def main() -> None:
    """Serve forks until Spark closes the pipe."""
    import pyspark.daemon

    leave_out_closed_connections()
    pyspark.daemon.manager()


def leave_out_closed_connections() -> None:
    """Let ``pyspark.daemon`` print the last error of a worker by :func:`print_error`."""
    import pyspark.daemon

    # The daemon looks it up by this name.
    printing = types.SimpleNamespace(print_exc=print_error, format_exc=traceback.format_exc)
    pyspark.daemon.traceback = printing  # type: ignore[assignment, attr-defined]


def print_error() -> None:
    """Print the traceback of a worker's last error, unless the JVM has closed the connection."""
    if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
        traceback.print_exc()


if __name__ == "__main__":
    main()
