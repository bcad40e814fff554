"""The service's side of the processes that read tables (``child``)."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch_service.errors import Busy, Conflict, InvalidInput, ServiceError
from anabranch_service.tables.current import SentRows, TableSpec

#: Maximum number of processes at a time, and of requests that wait for one.
PROCESSES, WAITING = 2, 16
#: Maximum number of bytes of a part of an answer, and of a line that a process writes.
_PART, _LINE = 1 << 18, 1 << 22
#: Seconds until a table's first rows, and between two parts of it.
PATIENCE = 60.0
_BUSY = frozenset({"files-replaced"})
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG", "HOME", "TMPDIR")

#: Function from names of tables to their common batch and their specifications.
Resolve = Callable[[Sequence[str]], Awaitable[tuple[int, Mapping[str, TableSpec | SentRows]]]]


@dataclass(slots=True)
class TableReader:
    """Starts processes that read tables (:mod:`.child`), and reads their output.

    Attributes:
        seconds, memory: limits of a statement; memory in bytes.
    """

    seconds: float
    memory: int
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PROCESSES))
    _waiting: int = 0

    async def table(
        self, results: str, spec: TableSpec, limit: int | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the rows of a table as parts of an Arrow IPC stream.

        Raises:
            ServiceError: they can't be read, or too many requests wait.
        """
        process = await self._start()
        try:
            request = self._request(results, spec.upto, limit)
            await _say(process, {**request, "sql": None, "table": asdict(spec)})
            await _heard(process, PATIENCE)
        except BaseException:
            await self._end(process)
            raise
        return self._parts(process)

    async def statement(
        self, results: str, sql: str, limit: int, resolve: Resolve
    ) -> tuple[int, bool, bytes]:
        """Run a statement over tables.

        Returns:
            The batch of the tables, whether rows beyond ``limit`` are left out,
            and the rows as an Arrow IPC stream.

        Raises:
            ServiceError: the statement is refused, fails or takes too long, or too many wait.
        """
        process = await self._start()
        try:
            async with asyncio.timeout(self.seconds):
                batch, truncated = await self._run(process, results, sql, limit, resolve)
                assert process.stdout is not None
                content = await process.stdout.read()
                if await process.wait():
                    raise _lost()
                return batch, truncated, content
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            await self._end(process)

    async def statement_parts(
        self, results: str, sql: str, resolve: Resolve
    ) -> AsyncGenerator[bytes]:
        """Run a statement over tables; yield all rows, as they are found, as parts of an Arrow IPC
        stream.

        Raises:
            ServiceError: as :meth:`statement`; the time limit applies to the first rows.
        """
        process = await self._start()
        try:
            async with asyncio.timeout(self.seconds):
                await self._run(process, results, sql, None, resolve)
        except BaseException as error:
            await self._end(process)
            if isinstance(error, TimeoutError):
                raise self._too_slow() from None
            raise
        return self._parts(process)

    async def _run(
        self,
        process: asyncio.subprocess.Process,
        results: str,
        sql: str,
        limit: int | None,
        resolve: Resolve,
    ) -> tuple[int, bool]:
        """Run a statement up to its first rows; return its batch, and whether rows are left out."""
        await _say(process, {**self._request(results, -1, limit), "sql": sql})
        names = (await _heard(process, self.seconds))["tables"]
        batch, specs = await resolve(names)
        await _say(process, {"batch": batch, "specs": {n: asdict(s) for n, s in specs.items()}})
        return batch, bool((await _heard(process, self.seconds))["truncated"])

    def _too_slow(self) -> InvalidInput:
        return InvalidInput(
            "sql-too-slow",
            f"the statement took more than {self.seconds:g} s",
            field="sql",
            remedy="read less, or let the operator raise --sql-seconds (ANABRANCH_SQL_SECONDS)",
        )

    def _request(self, results: str, batch: int, limit: int | None) -> dict[str, Any]:
        return {
            "results": results,
            "batch": batch,
            "limit": limit,
            "memory": self.memory,
            "seconds": self.seconds,
        }

    async def _parts(self, process: asyncio.subprocess.Process) -> AsyncGenerator[bytes]:
        assert process.stdout is not None
        try:
            while part := await asyncio.wait_for(process.stdout.read(_PART), PATIENCE):
                yield part
            if await process.wait():
                # The answer lacks its end marker, so the reader sees that it is incomplete.
                raise _lost()
        finally:
            await self._end(process)

    async def _start(self) -> asyncio.subprocess.Process:
        if importlib.util.find_spec("duckdb") is None:
            raise Conflict(
                "tables-not-installed",
                "the service lacks DuckDB, by which it reads tables",
                remedy='install DuckDB where the service runs: pip install "anabranch[tables]"',
            )
        if self._waiting >= WAITING:
            raise Busy(
                "too-many-tables",
                f"{WAITING} requests for tables wait already",
                remedy="try again shortly",
            )
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "anabranch_service.tables.child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_LINE,
                # Without the secrets in the service's environment.
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
        except BaseException:
            self._room.release()
            raise

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.kill()
        try:
            assert process.stdout is not None
            while await process.stdout.read(_PART):
                pass
            await process.wait()
        finally:
            self._room.release()


async def _say(process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    with suppress(ConnectionError):
        await process.stdin.drain()


async def _heard(process: asyncio.subprocess.Process, seconds: float) -> dict[str, Any]:
    """Return the process's next message.

    Raises:
        ServiceError: the process reports a problem, or has ended.
    """
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), seconds)
        message: dict[str, Any] = json.loads(line)
    except ValueError:
        raise _lost() from None
    found = message.get("problem")
    if found is None:
        return message
    kind = Busy if found["code"] in _BUSY else InvalidInput
    raise kind(found["code"], found["message"], field=found["field"], remedy=found["remedy"])


def _lost() -> ServiceError:
    """Return the error of a process that was killed by its limits or by a fault of a library."""
    return InvalidInput(
        "reading-failed",
        "the process that read the tables has ended",
        remedy="try again; a statement that takes too much memory or time ends this way, too",
    )
