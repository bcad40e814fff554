"""Process that calls users' functions of one module; :mod:`.user_functions` starts it as a script.

A function may loop, crash or exit without effect on the worker, which ends this process after a
time limit. If the worker has died meanwhile, an alarm signal ends the process. Standard output is
sent to standard error, since the worker's standard output has other readers.

A message is a tag, a length, the CPU seconds that an answer took, and bytes. The first request is a
JSON object: the module with its files, digest and folders. Each further one is an Arrow stream: a
batch of arguments, with metadata in its schema: the function's attribute and kind, the time limit,
and the result's type. An answer is a batch of one column, or the text of an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import struct
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

HEADER = struct.Struct("<BQd")
DONE, FAILED = 0, 1
#: Name of the result's column, and of the metadata item that has the result's type.
RESULT = "result"
#: Seconds that loading a module may take.
LOADING = 60.0
#: Seconds after a function's time limit until this process ends by itself.
_GRACE = 2.0


def receive(connection: socket.socket) -> tuple[int, bytearray, float]:
    """Receive a message of worker or function process: tag, bytes, the sender's CPU seconds.

    Raises:
        EOFError: the other side has closed the connection.
        OSError: the connection's time limit has passed, or it has another error.
    """
    tag, length, seconds = HEADER.unpack(_exactly(connection, HEADER.size))
    return tag, _exactly(connection, length), seconds


def _exactly(connection: socket.socket, length: int) -> bytearray:
    found = bytearray(length)
    view, at = memoryview(found), 0
    while at < length:
        count = connection.recv_into(view[at:])
        if not count:
            raise EOFError
        at += count
    return found


def encoded(batch: pa.RecordBatch) -> pa.Buffer:
    """Encode arguments or result of a user's function, a batch, as bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def decoded(message: bytes | bytearray) -> pa.RecordBatch:
    """Decode the batch of a user's function in an Arrow stream made by :func:`encoded`."""
    with pa.ipc.open_stream(pa.py_buffer(message)) as reader:
        return reader.read_next_batch()


def load(name: str, files: Sequence[str], digest: str, folders: Sequence[str]) -> Any:
    """Load a module of users' functions: execute the first existing file as module ``name``.

    Args:
        digest: SHA-256 that the file must have. ``folders``: where it may import from.

    Raises:
        ValueError: there is no such file, or it has changed.
        BaseException: any error that the module raises.
    """
    path = next((Path(file) for file in files if Path(file).is_file()), None)
    if path is None:
        raise ValueError(f"there is no file {' or '.join(files) or f'of module {name}'}")
    code = path.read_bytes()
    if hashlib.sha256(code).hexdigest() != digest:
        raise ValueError(f"{path} has changed since the function was registered")
    sys.path += folders
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(code, str(path), "exec"), module.__dict__)
    return module


def called(
    function: Callable[..., Any], kind: str, batch: pa.RecordBatch, wanted: pa.DataType
) -> pa.Array:
    """Call ``function`` on the arguments in ``batch``; return its result as type ``wanted``.

    Raises:
        ValueError, TypeError: the result has another length or type than declared.
        BaseException: any error that the function raises.
    """
    columns, rows = batch.columns, batch.num_rows
    if kind == "row":
        values = zip(*(column.to_pylist() for column in columns), strict=True)
        return _of_type([function(*row) for row in values], wanted, of_pandas=False)
    if kind == "pandas":
        columns = [column.to_pandas() for column in columns]
    found = function(*columns)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if kind == "arrow" and not isinstance(found, pa.Array):
        raise TypeError(f"the result is of type {type(found).__name__}, not an Arrow array")
    length = len(found) if hasattr(found, "__len__") else None
    if length != rows:
        shown = "no length" if length is None else f"{length} values"
        raise ValueError(f"the result has {shown}, the arguments have {rows}")
    if kind == "pandas":
        return _of_type(found, wanted, of_pandas=True)
    if found.type != wanted:
        raise TypeError(f"the result is of Arrow type {found.type}, not {wanted}")
    found.validate(full=True)
    return found


def _of_type(values: Any, wanted: pa.DataType, *, of_pandas: bool) -> pa.Array:
    """Return a function's ``values`` as an array of type ``wanted``. Fractions are refused for
    integers; None, and in pandas NaN, is NULL. Arrow converts nested values."""
    try:
        natural = wanted
        if not pa.types.is_nested(wanted):
            natural = pa.array(values, from_pandas=of_pandas).type
        fits = {_family(wanted), pa.types.is_null}
        if _family(wanted) in (pa.types.is_floating, pa.types.is_decimal):
            fits.add(pa.types.is_integer)
        if of_pandas and _family(wanted) is pa.types.is_integer:
            # In pandas, integers with NULLs are a Series of floats; fractions are refused below.
            fits.add(pa.types.is_floating)
        if _family(natural) not in fits:
            raise TypeError(f"its values are of Arrow type {natural}")
        found = pa.array(values, wanted, from_pandas=of_pandas)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"the result is not of type {wanted}: {error}") from error
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _family(kind: pa.DataType) -> Callable[[pa.DataType], bool]:
    """Return a test that accepts the Arrow types of the same family as ``kind``."""
    return next(test for test in _FAMILIES if test(kind))


_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating),
    *(pa.types.is_decimal, pa.types.is_string, pa.types.is_binary, pa.types.is_date),
    *(pa.types.is_timestamp, lambda _: True),
)


def _of_request(module: Any, request: bytearray) -> pa.Buffer:
    batch = decoded(request)
    about = {name.decode(): value for name, value in batch.schema.metadata.items()}
    signal.setitimer(signal.ITIMER_REAL, float(about["limit"]) + _GRACE)
    wanted = pa.ipc.read_schema(pa.py_buffer(about[RESULT])).field(0).type
    function = module
    for part in about["attribute"].decode().split("."):
        function = getattr(function, part)
    result = called(function, about["kind"].decode(), batch, wanted)
    return encoded(pa.RecordBatch.from_arrays([result], [RESULT]))


def _answer(connection: socket.socket, made: Callable[[], Any]) -> bool:
    """Send the value that ``made`` returns, or its error; return whether there was no error."""
    began = time.process_time()
    try:
        tag, message = DONE, made()
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt, too
        tag, message = FAILED, _described(error).encode()
    signal.setitimer(signal.ITIMER_REAL, 0)
    connection.sendall(HEADER.pack(tag, len(message), time.process_time() - began))
    connection.sendall(message)
    return tag == DONE


def _described(error: BaseException) -> str:
    """Return the message of an error in a user's function, with its line in the module."""
    text = str(error).strip().split("\n")[0][:500]
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    own = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != __file__]
    return f"{text} (line {own[0].lineno} of {Path(own[0].filename).name})" if own else text


def main(connection: socket.socket) -> None:
    """Answer the worker's requests (calls of users' functions) until the connection is closed."""
    modules = list[Any]()

    def begin() -> bytes:
        modules.append(load(**json.loads(request)))
        return b""

    with connection:
        try:
            _, request, _ = receive(connection)
            signal.setitimer(signal.ITIMER_REAL, LOADING + _GRACE)
            going_on = _answer(connection, begin)
            while going_on:
                _, request, _ = receive(connection)
                _answer(connection, partial(_of_request, modules[0], request))
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    os.dup2(2, 1)
    main(socket.socket(fileno=int(sys.argv[1])))
