"""A file object over parts of an Arrow IPC stream, from a table process to a client of Flight."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress

import pyarrow as pa
from pyarrow import flight

from anabranch_service.errors import ServiceError
from anabranch_service.flight.errors import as_flight
from anabranch_service.tables.reader import PATIENCE

#: Maximum number of parts that wait for the client.
_WAITING = 4


class PartFile(io.RawIOBase):
    """A file object whose content a coroutine produces in parts, and another thread reads.

    Only a few parts wait in memory. If the reader takes none for :data:`PATIENCE` seconds, or
    closes the file, the source of the parts is closed, since it occupies one of a few processes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: AsyncGenerator[bytes]) -> None:
        self._loop, self._parts = loop, parts
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        self._error: BaseException | None = None
        self._rest = b""
        self._pump = asyncio.run_coroutine_threadsafe(self._fill(), loop)

    def readable(self) -> bool:
        """Whether the file can be read: always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read some bytes; 0 at the end.

        Raises:
            ServiceError: the source has failed, or the reader was too slow.
        """
        if not self._rest:
            self._rest = asyncio.run_coroutine_threadsafe(self._queue.get(), self._loop).result()
        if not self._rest and self._error is not None:
            raise self._error
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        """Close the file and the source of its parts."""
        self._pump.cancel()
        super().close()

    async def _fill(self) -> None:
        try:
            async for part in self._parts:
                await asyncio.wait_for(self._queue.put(part), PATIENCE)
            await asyncio.wait_for(self._queue.put(b""), PATIENCE)
        except TimeoutError:
            self._fail(ServiceError("too-slow", f"no rows were taken for {PATIENCE:g} s"))
        except ServiceError as error:
            self._fail(error)
        finally:
            await self._parts.aclose()

    def _fail(self, error: ServiceError) -> None:
        self._error = error
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(b"")


def batches(
    context: flight.ServerCallContext, feed: PartFile, reader: pa.RecordBatchReader
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of ``reader``, which reads ``feed``, until the client cancels the call.

    Raises:
        flight.FlightError: the source has failed.
    """
    try:
        while not context.is_cancelled():
            with suppress(StopIteration):
                yield reader.read_next_batch()
                continue
            return
    except ServiceError as error:
        raise as_flight(error) from None
    finally:
        feed.close()
