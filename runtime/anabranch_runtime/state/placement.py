"""Hosts of a pipeline's tasks, and the placement of partitions on them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Placement:
    """A map from store partitions to hosts.

    Attributes:
        hosts: names of the hosts, sorted.
        owners: (number of partitions, index in ``hosts`` per partition), for each number of
            partitions that stores have.
    """

    hosts: tuple[str, ...]
    owners: tuple[tuple[int, tuple[int, ...]], ...]

    def of(self, partitions: int) -> tuple[int, ...] | None:
        """Return the host's index of each of ``partitions`` partitions; None: not placed."""
        return next((owners for count, owners in self.owners if count == partitions), None)

    def host_of(self, partitions: int, partition: int) -> str | None:
        """Return the host of ``partition``, one of ``partitions`` in a store; None: not placed."""
        known = self.of(partitions)
        return None if known is None else self.hosts[known[partition]]


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts of a pipeline's tasks on a cluster whose hosts share only the object store.

    Attributes:
        placement: partition -> host; None: all tasks have run on one host.
        tasks: host of the last batch -> number of its tasks.
        load: number of partitions (as text) -> CPU seconds of probes by partition, decayed over
            epochs (``placement.moves``).
        demand: host -> number of partitions -> bytes, by partition, of tuples that arrived on the
            host and are needed in the partition; decayed as ``load`` is.
    """

    placement: Placement | None = None
    tasks: dict[str, int] = field(default_factory=dict)
    load: dict[str, tuple[float, ...]] = field(default_factory=dict)
    demand: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)


@dataclass(slots=True)
class HostReport:
    """The host of one task, and its work there in one batch.

    Attributes:
        name: the host's name (``exchange.host``); empty if all tasks share a state directory.
        site: the host's site. ``office``: address of its process for merges (``spark.merges``).
        load: number of partitions -> CPU seconds of probes by partition; empty on one host.
        demand: number of partitions -> bytes of tuples that arrived on the host, by the partition
            that needs them (``exchange.traffic``); empty on one host.
    """

    name: str = ""
    site: str = ""
    office: str = ""
    load: dict[int, list[float]] = field(default_factory=dict)
    demand: dict[int, list[float]] = field(default_factory=dict)
