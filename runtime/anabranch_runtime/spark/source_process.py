"""The process that plans a streaming source, without needless tracebacks.

Spark starts one for each source and query, and closes its socket when the query stops, or after ten
seconds. A process that comes too late for that says so in a line. The runtime tries again where it
was needed (``driver.pipeline``). The interpreter's script puts this module before Spark's
(``spark.interpreter``).
"""

from __future__ import annotations

import runpy
import sys

from pyspark.errors import PySparkRuntimeError

#: Condition in Spark's error for a closed socket.
NO_SOCKET = "CANNOT_OPEN_SOCKET"


def main() -> None:
    """Run the module that the first argument names."""
    try:
        runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
    except PySparkRuntimeError as error:
        if error.getCondition() != NO_SOCKET:
            raise
        sys.stderr.write("a source's process was too late: Spark does not wait for it any more\n")
        sys.exit(1)
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(1)


if __name__ == "__main__":
    main()
