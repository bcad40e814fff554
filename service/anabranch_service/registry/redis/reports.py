"""Reports of the runtime in Redis: boundaries, measurements, its present state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from redis.asyncio import Redis

from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.protocol.batches import BatchReport
from anabranch_contract.protocol.intake import SourceState, SourceStatus, StreamIntake
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import LatestRows, Snapshot, StreamSample
from anabranch_contract.protocol.profile import CpuReport
from anabranch_contract.protocol.progress import Heartbeat, Progress
from anabranch_contract.protocol.state_report import StateReport, StoreParts
from anabranch_service.errors import CorruptRecord
from anabranch_service.registry.mirror import Mirror
from anabranch_service.registry.publishing.history import HistoryPoint
from anabranch_service.registry.redis import connections
from anabranch_service.registry.redis.base import RedisRecords
from anabranch_service.registry.redis.reading import (
    lenient,
    read_boundary,
    read_snapshot,
    readable,
    reply,
    reply_record,
    reply_text,
    stream_entries,
    unpacked,
)
from anabranch_service.registry.source_status import SourceStates


class ReportStore(RedisRecords):
    """Measurements of epochs, periods, batches and streams, and the runtime's present state."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        super().__init__(redis, namespace)
        key, journal = self.keys.activations, self.keys.activation_changes
        self._activations = Mirror(redis, journal, key, "activations", partial(lenient, Activation))

    async def cursor(self) -> int:
        """Return the number of boundaries in the list for which an epoch has been planned."""
        return int(await reply_text(self.redis.get(self.keys.cursor)) or 0)

    async def boundary_text(self, index: int) -> str | None:
        """Return the epoch boundary at ``index`` (negative: from the end) as text, or None."""
        return await reply_text(self.redis.lindex(self.keys.boundaries, index))

    async def await_report(self, after: str, seconds: float) -> str:
        """Wait at most ``seconds``, and half of a command's time limit, for an entry of
        ``Keys.reports`` later than ``after``; return its id, or ``after`` if there is none."""
        block = max(1, round(1000 * min(seconds, connections.SECONDS / 2)))
        entries = stream_entries(await self.redis.xread({self.keys.reports: after}, block=block))
        return entries[-1][0] if entries else after

    async def last_snapshot(self) -> Snapshot | None:
        """Return the newest statistics that the runtime reported; None if missing or unreadable."""
        text = await self.boundary_text(-1)
        try:
            return None if text is None else read_snapshot(read_boundary(text))
        except CorruptRecord:
            return None

    async def statistics(self, epoch: int) -> Snapshot | None:
        """Return the measurements of an epoch; None if it has not ended, or they are unreadable."""
        text = unpacked(await reply_text(self.redis.get(self.keys.statistics(epoch))))
        return lenient(Snapshot, f"statistics {epoch}", text)

    async def interim_text(self, index: int) -> str | None:
        """Return the period at ``index`` (negative: from the end) as text, or None."""
        return unpacked(await reply_text(self.redis.lindex(self.keys.interims, index)))

    async def interims(self, last: int) -> list[Interim]:
        """Return the measurements of the newest ``last`` periods, oldest first.

        An unreadable period (written by another release) is left out and logged.
        """
        return readable(Interim, "interim measurements", await self.interim_texts(last))

    async def batches(self, last: int) -> list[BatchReport]:
        """Return reports of the newest ``last`` batches, oldest first, without unreadable ones."""
        texts = await reply(self.redis.lrange(self.keys.batches, -last, -1), list[str])
        return readable(BatchReport, "report of a batch", texts)

    async def cpu_report(self) -> CpuReport | None:
        """Return the runtime's newest report of its CPU time; None if missing or unreadable."""
        return await reply_record(CpuReport, "profile", self.redis.get(self.keys.profile))

    async def history(self, last: int) -> list[HistoryPoint]:
        """Return the newest ``last`` points of the history of rates, oldest first, if readable."""
        texts = await reply(self.redis.lrange(self.keys.history, -last, -1), list[str])
        return readable(HistoryPoint, "point of history", texts)

    async def interim_texts(self, last: int) -> tuple[str, ...]:
        """Return documents (JSON texts) of the newest ``last`` periods, oldest first."""
        kept = await reply(self.redis.lrange(self.keys.interims, -last, -1), list[str])
        return tuple(text for text in map(unpacked, kept) if text is not None)

    async def statistics_texts(self, epochs: Iterable[int]) -> tuple[str, ...]:
        """Return the JSON texts of the measurements of ``epochs``; missing ones are left out."""
        keys = [self.keys.statistics(epoch) for epoch in epochs if epoch >= 0]
        kept = await reply(self.redis.mget(keys), list[str | None]) if keys else []
        return tuple(text for text in map(unpacked, kept) if text is not None)

    async def samples(self) -> dict[str, StreamSample]:
        """Return stream -> its newest sample."""
        return await self._all(StreamSample, self.keys.samples, "sample ")

    async def sample(self, stream: str) -> StreamSample | None:
        """Return the newest sample of one stream."""
        return await self._field(StreamSample, self.keys.samples, stream, "sample ")

    async def latest(self, stream: str) -> LatestRows | None:
        """Return the latest rows of a stream; None before any were published."""
        return await self._field(LatestRows, self.keys.latest, stream, "latest rows of ")

    async def progress(self) -> Progress | None:
        """Return the progress of the runtime, or None if it never started (or it can't be read)."""
        return await reply_record(Progress, "runtime", self.redis.get(self.keys.runtime))

    async def intake(self, stream: str) -> StreamIntake | None:
        """Return the state of a stream's input; None without a live runtime or its report."""
        progress = await self.progress()
        if progress is None or not (await self.sources()).alive:
            return None
        return progress.input.intake.get(stream)

    async def sources(self) -> SourceStates:
        """Return the states of the streams' sources, as reported by the runtime.

        A source that was opened but can't be read further counts as failed: its stream has stopped
        before a bad file, or its server does not answer.
        """
        reported = await self._all(SourceStatus, self.keys.sources, "source ")
        progress = await self.progress()
        for name, intake in ({} if progress is None else progress.input.intake).items():
            known = reported.get(name)
            if intake.error and known is not None and known.state is SourceState.READING:
                reported[name] = replace(known, state=SourceState.FAILED, error=intake.error)
        heartbeat = await self.heartbeat()
        return SourceStates(reported, heartbeat is not None and heartbeat.state != "starting")

    async def heartbeat(self) -> Heartbeat | None:
        """Return the runtime's heartbeat; None if it has expired."""
        return await reply_record(Heartbeat, "heartbeat", self.redis.get(self.keys.heartbeat))

    async def standby(self) -> Heartbeat | None:
        """Return the heartbeat of the standby (a waiting second runtime); None if there is none."""
        return await reply_record(Heartbeat, "standby", self.redis.get(self.keys.standby))

    async def state(self) -> StateReport | None:
        """Return the contents of the stores, or None before the runtime's first report."""
        return await reply_record(StateReport, "state", self.redis.get(self.keys.state))

    async def state_parts(self, store: str) -> StoreParts | None:
        """Return one store's segments and readers; None before the runtime's first report."""
        return await self._field(StoreParts, self.keys.state_parts, store, "parts of ")

    async def activations(self) -> Mapping[str, Activation]:
        """Return query -> its activation by the runtime."""
        return await self._activations.all()

    async def activation(self, name: str) -> Activation | None:
        """Return the activation of one query."""
        return await self._field(Activation, self.keys.activations, name)

    async def view_rows(self, name: str) -> ViewRows | None:
        """Return the rows of one view, as last reported."""
        return await self._field(ViewRows, self.keys.views, name)
