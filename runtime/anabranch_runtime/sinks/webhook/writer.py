"""Writer of webhooks: posts deliveries in threads, so that a slow receiver holds up nothing else.

A call of :meth:`WebhookWriter.write` begins a delivery or checks its progress: it raises
:class:`SinkUnderway` until the delivery is done, and then returns or raises the error. The requests
of a delivery are sent one after the other. A failed delivery is continued with its first unanswered
request; after a restart of the process it begins again, with the same ids.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.webhook.options import WebhookOptions, webhook_options
from anabranch_runtime.errors import SinkUnderway
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.webhook.receiver import Receiver
from anabranch_runtime.sinks.webhook.requests import WebhookRequest, requests_of
from anabranch_runtime.sinks.webhook.signing import keys_of, signature

#: Maximum number of concurrent deliveries: of a process, and to one host.
MOST, MOST_OF_HOST = 16, 4
#: Seconds for which a call waits for the end of a delivery, and seconds until the next call.
PATIENCE, LOOK = 0.002, 0.05


@dataclass(slots=True)
class _Posting:
    """A webhook's delivery that is in progress, or whose last attempt has failed.

    Attributes:
        batch: batch of the delivery. ``host``: host of the receiver.
        accepted: number of requests that the receiver has accepted.
        done: set at the end of an attempt, with its ``error``, if any.
    """

    batch: int
    host: str
    accepted: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    running: bool = False


@dataclass(slots=True)
class WebhookWriter:
    """Posts deliveries to the receivers of webhooks.

    Attributes:
        namespace: namespace of the pipeline. ``access``: policy of permitted addresses.
    """

    namespace: str
    access: AccessPolicy
    #: Query -> its delivery; a query has one at a time, since its deliveries are in order.
    _postings: dict[str, _Posting] = field(default_factory=dict)

    def write(self, delivery: Delivery, identity: str) -> None:
        """Begin or continue a delivery to a webhook; return if all its requests are accepted.

        Args:
            delivery: with secrets in place of references to them; its files stay until it is done.
            identity: id of the pipeline's state.

        Raises:
            SinkUnderway: the delivery is still in progress, or waits for a thread.
            SinkError: the attempt failed.
        """
        options = webhook_options(dict(delivery.sink.options))
        posting = self._postings.get(delivery.query)
        if posting is None or posting.batch != delivery.batch:
            if posting is not None and posting.running and not posting.done.is_set():
                raise _underway("an earlier delivery goes first")
            posting = _Posting(delivery.batch, urlsplit(options.url).netloc)
            self._postings[delivery.query] = posting
        if not posting.running:
            self._begin(posting, delivery, options, f"{self.namespace}/{identity}")
        if not posting.done.wait(PATIENCE):
            raise _underway(f"{posting.accepted} requests are accepted")
        posting.running = False
        if posting.error is not None:
            raise posting.error
        del self._postings[delivery.query]

    def _begin(
        self, posting: _Posting, delivery: Delivery, options: WebhookOptions, pipeline: str
    ) -> None:
        running = [one.host for one in self._postings.values() if one.running]
        if len(running) >= MOST or running.count(posting.host) >= MOST_OF_HOST:
            raise _underway("other deliveries go first")
        posting.running, posting.error = True, None
        posting.done.clear()
        requests = requests_of(delivery, options, pipeline, posting.accepted)
        if delivery.first is None:
            # All requests of a version are made now, since its file does not outlive this call.
            requests = iter(list(requests))
        arguments = (posting, requests, options)
        name = f"webhook {delivery.query}"
        threading.Thread(target=self._post, args=arguments, name=name, daemon=True).start()

    def _post(
        self, posting: _Posting, requests: Iterator[WebhookRequest], options: WebhookOptions
    ) -> None:
        try:
            keys = keys_of(options.secret)
            receiver = Receiver(options.url, self.access, options.timeout)
            try:
                for one in requests:
                    receiver.post(one.body, dict(headers_of(keys, one, int(time.time()))))
                    posting.accepted += 1
            finally:
                receiver.close()
        except BaseException as error:  # noqa: BLE001 - raised by the next call of write
            posting.error = error
        posting.done.set()


def _underway(what: str) -> SinkUnderway:
    return SinkUnderway("sink-underway", what, pause=LOOK)


def headers_of(
    keys: Sequence[bytes], request: WebhookRequest, now: int
) -> Iterator[tuple[str, str]]:
    """Yield the headers of a webhook's request sent at the time ``now`` (seconds since 1970)."""
    yield "content-type", "application/json"
    yield "user-agent", "anabranch"
    yield "webhook-id", request.ident
    yield "webhook-timestamp", str(now)
    yield "webhook-signature", signature(keys, request.ident, now, request.body)
