"""Settings of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.protocol.merging import FANOUT
from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.state.slices import Throttle
from anabranch_runtime.storage.depth import Verify


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of a cluster whose hosts share only the object store.

    Attributes:
        cache: state directory of the tasks on each host; a relative path is below the executor's
            working directory.
        port: the driver's port for tasks; 0: any.
    """

    cache: str = "anabranch-cache"
    port: int = 0


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits of memory in bytes.

    Attributes:
        workers: private memory that the workers of a host may take together (``task.memory``);
            None: no limit.
        table: memory of the maintained table of one query; None: a quarter of the machine's memory.
    """

    workers: int | None = None
    table: int | None = None


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Settings of a pipeline.

    Attributes:
        state: directory of manifests, segments and the journal.
        results: directory of result files.
        epoch_batches: batches per epoch.
        epoch_seconds: in live mode, seconds within which an epoch ends after objects were
            registered or removed; without any change, within ``IDLE_EPOCHS`` times as many.
        interim_seconds: length of the periods of interim measurements.
        revise_batches: in step mode, number of batches after which an epoch waits for a revision of
            its ruleset; None: never. In live mode, revisions are taken without waiting.
        patience: seconds to wait for a ruleset without which no batch can run.
        attempts: number of attempts at a batch before the pipeline fails.
        stuck_after: seconds without a sign of its tasks after which an attempt is cancelled.
        verify: extent of the check of the state at a start.
        fanout: number of segments of one store partition that are merged into one.
        throttle: limits of a batch's part of a backfill or a catch-up.
        target_latency: seconds that a batch should take from its planning to its commit. Sources
            that the runtime reads itself limit their rows to it; None: all available rows. Ignored
            in step mode, where batches don't depend on speed.
        memory: limits of memory.
        object_store: address of the object store with the durable state (``storage.object_store``);
            the state directory is then its cache. None: the state is in the directory only.
        cache_size: bytes of packs that the state directory keeps after a commit; None: all. See
            ``storage.cache``.
        cluster: settings of a cluster with an object store.
        spark: additional settings of Spark.
        access: permissions of sources and sinks.
    """

    state: Path
    results: Path
    epoch_batches: int = 4
    epoch_seconds: float = 5.0
    interim_seconds: float = 3.0
    revise_batches: int | None = None
    mode: Mode = Mode.LIVE
    patience: float = 300.0
    attempts: int = 4
    stuck_after: float = 600.0
    verify: Verify = Verify.FULL
    fanout: int = FANOUT
    throttle: Throttle = field(default_factory=Throttle)
    target_latency: float | None = 1.0
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    object_store: str | None = None
    cache_size: int | None = None
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    spark: Mapping[str, str] = field(default_factory=dict)
    access: AccessPolicy = field(default_factory=AccessPolicy)
