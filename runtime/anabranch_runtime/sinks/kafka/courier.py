"""Sending of deliveries to Kafka topics in a separate thread, while the next batches run.

The caller keeps a delivery's files until the delivery is done, and begins at most one delivery of a
query at a time. All clients of Kafka belong to this one thread.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from anabranch_runtime.errors import SinkUnderway
from anabranch_runtime.sinks.delivery import Delivery, Write

#: Seconds between two checks whether a delivery is done.
LOOK = 0.01


@dataclass(slots=True)
class Courier:
    """Writes deliveries in its own thread, one after the other in order of their first calls.

    Attributes:
        write: writes a delivery, and returns when the sink has it.
    """

    write: Write
    #: Query -> batch of its delivery in progress, and the future of that delivery.
    _underway: dict[str, tuple[int, Future[None]]] = field(default_factory=dict)
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="kafka")
    )

    def __call__(self, delivery: Delivery) -> None:
        """Begin a delivery, or check on it; return if the topic has it.

        Raises:
            SinkUnderway: the delivery is in progress; always raised by the call that begins it.
            BaseException: the writer's error; the next call begins the delivery again.
        """
        batch, attempt = self._underway.get(delivery.query, (None, None))
        if attempt is not None:
            if not attempt.done():
                raise SinkUnderway("sink-underway", f"batch {batch} is being sent", pause=LOOK)
            del self._underway[delivery.query]
            if batch == delivery.batch:
                return attempt.result()
        begun = self._thread.submit(self.write, delivery)
        self._underway[delivery.query] = delivery.batch, begun
        raise SinkUnderway("sink-underway", f"batch {delivery.batch} is being sent", pause=LOOK)
