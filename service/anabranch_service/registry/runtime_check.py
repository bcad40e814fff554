"""Readiness check of the runtime."""

from __future__ import annotations

from anabranch_contract.protocol.keys import HEARTBEAT_MILLISECONDS
from anabranch_contract.protocol.progress import VERSION
from anabranch_service.registry.store import Store


async def runtime_check(store: Store) -> str:
    """Check whether the runtime is alive; returns ``ok`` or the problem.

    A new pipeline needs no runtime: ``ok`` until a stream is registered or a runtime has started.
    """
    heartbeat = await store.heartbeat()
    if heartbeat is not None and heartbeat.version != VERSION:
        return (
            f"it reads and writes documents of version {heartbeat.version}, the service those of "
            f"version {VERSION}: run one release of both"
        )
    if heartbeat is not None:
        return "ok" if heartbeat.state != "starting" else "it is starting"
    progress = await store.progress()
    if progress is None:
        return "it has not been started" if await store.has_streams() else "ok"
    if progress.state in ("stopped", "failed"):
        return f"it has {progress.state}" + (f": {progress.error}" if progress.error else "")
    seconds = HEARTBEAT_MILLISECONDS // 1000
    return f"no heartbeat for {seconds} s or more (it was {progress.state})"
