"""Calls of users' functions, each in a process of its module (:mod:`.user_process`).

A call sends the arguments as Arrow columns and receives the result's column. A function that raises
an error, exceeds its time limit, ends its process, or returns a column of another type or length
counts as an expression that fails (``docs/semantics.md``). A deterministic function is called once
for equal calls in quick succession.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from anabranch_contract.connectors.user_functions import VARIABLE, UserFunction, module_files
from anabranch_contract.queries.expressions import Call
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.cpu import add_called
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions import user_process
from anabranch_runtime.expressions.user_process import DONE, HEADER, LOADING, RESULT

#: Maximum number of idle processes that are kept for later calls.
_IDLE_MOST = 4
#: Number of a thread's last calls whose results are kept, and maximum bytes of their arguments.
_KEPT, _KEPT_BYTES = 4, 1 << 25


@dataclass(slots=True)
class _Module:
    """A process that has loaded one module of users' functions.

    Attributes:
        key: name and digest of the module, and the folders where it was searched.
    """

    key: tuple[str, str, str]
    process: subprocess.Popen[bytes]
    connection: socket.socket

    def ask(self, message: bytes | pa.Buffer, seconds: float) -> tuple[int, bytearray]:
        """Send the function process a request; return its answer, and count its CPU time.

        Raises:
            TimeoutError: there is no answer after ``seconds``.
            OSError, EOFError: the process has ended.
        """
        self.connection.settimeout(seconds)
        until = time.monotonic() + seconds
        self.connection.sendall(HEADER.pack(0, len(message), 0.0))
        self.connection.sendall(message)
        self.connection.settimeout(max(until - time.monotonic(), 0.001))
        tag, answer, spent = user_process.receive(self.connection)
        add_called(spent)
        return tag, answer

    def end(self, patience: float = 0.0) -> int:
        """Kill the process and its children after ``patience`` seconds; return its exit code."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


class _LastCalls(threading.local):
    """The last calls of users' functions by a thread: function, arguments as bytes, result."""

    def __init__(self) -> None:
        self.calls: deque[tuple[UserFunction, pa.Buffer, pa.Array]] = deque(maxlen=_KEPT)


_LAST = _LastCalls()
_LOCK = threading.Lock()
_IDLE: list[_Module] = []


def call(expr: Call, args: Sequence[pa.Array], rows: int) -> pa.Array:
    """Call a user's function on ``rows`` rows and return the values of its result.

    Raises:
        ExpressionError: ``function-unavailable``: its module can't be loaded; ``function-failed``;
            ``function-too-slow``.
    """
    function = UserFunction.of(expr)
    result = arrow_type(expr.type)
    about = {
        "attribute": function.attribute,
        "kind": str(function.kind),
        "limit": str(function.limit / 1000),
        RESULT: pa.schema([(RESULT, result)]).serialize().to_pybytes(),
    }
    batch = pa.RecordBatch.from_arrays(list(args), [f"arg{n}" for n in range(len(args))])
    message = user_process.encoded(batch.replace_schema_metadata(about))
    if function.deterministic:
        for known, given, found in _LAST.calls:
            if known == function and given.equals(message):
                return found
    found = _called(function, message)
    if found.type != result or len(found) != rows:
        raise _failed(function, "its process gave a wrong answer")
    if function.deterministic and message.size <= _KEPT_BYTES:
        _LAST.calls.append((function, message, found))
        while sum(given.size for _, given, _ in _LAST.calls) > _KEPT_BYTES:
            _LAST.calls.popleft()
    return found


def _called(function: UserFunction, message: pa.Buffer) -> pa.Array:
    module = _module(function)
    try:
        tag, answer = module.ask(message, function.limit / 1000)
    except TimeoutError:
        module.end()
        raise ExpressionError(
            "function-too-slow",
            f"function {function.name}() took more than {function.limit / 1000:g} s",
            remedy="make it faster, or register it with a longer time_limit",
        ) from None
    except (EOFError, OSError):
        raise _failed(function, f"it ended its process ({_exit(module.end(1.0))})") from None
    except BaseException:
        module.end()
        raise
    _put_back(module)
    if tag != DONE:
        raise _failed(function, answer.decode())
    return user_process.decoded(answer).column(0)


def _module(function: UserFunction) -> _Module:
    """Return an idle or new process that has loaded the module of the user's ``function``.

    Raises:
        ExpressionError: ``function-unavailable``.
    """
    allowed = os.environ.get(VARIABLE, "")
    key = function.module, function.digest, allowed
    with _LOCK:
        for module in reversed(_IDLE):
            if module.key == key and module.process.poll() is None:
                _IDLE.remove(module)
                return module
    places = [place for place in allowed.split(":") if place]
    request = {
        "name": function.module,
        "files": module_files(places, function.module),
        "digest": function.digest,
        "folders": [place for place in places if not place.endswith(".py")],
    }
    module = _started(key)
    try:
        tag, answer = module.ask(json.dumps(request).encode(), LOADING)
        reason = "" if tag == DONE else answer.decode()
    except TimeoutError:
        reason = f"it took more than {LOADING:g} s"
    except (EOFError, OSError):
        reason = f"it ended its process ({_exit(module.end(1.0))})"
    if reason:
        module.end()
        raise ExpressionError(
            "function-unavailable",
            f"module {function.module!r} of function {function.name}() can't be loaded: {reason}",
            remedy=f"every worker needs the registered file in --functions ({VARIABLE}); register "
            "a changed module under another name",
        )
    return module


def _started(key: tuple[str, str, str]) -> _Module:
    """Start a process for users' functions, which has not loaded its module yet."""
    own, other = socket.socketpair()
    with other:
        command = [sys.executable, "-P", user_process.__file__, str(other.fileno())]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(other.fileno(),),
            start_new_session=True,
        )
    return _Module(key, process, own)


def _put_back(module: _Module) -> None:
    with _LOCK:
        _IDLE.append(module)
        spare = _IDLE.pop(0) if len(_IDLE) > _IDLE_MOST else None
    if spare is not None:
        spare.end()


@atexit.register
def end_all() -> None:
    """End this process's idle processes of users' functions."""
    with _LOCK:
        modules = list(_IDLE)
        _IDLE.clear()
    for module in modules:
        module.end()


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _failed(function: UserFunction, reason: str) -> ExpressionError:
    return ExpressionError(
        "function-failed",
        f"function {function.name}() failed: {reason}",
        remedy=f"correct {function.attribute} in module {function.module!r}, and register it again",
    )
