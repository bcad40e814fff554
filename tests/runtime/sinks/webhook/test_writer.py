"""Tests of webhook writers with a real receiver: signatures, faults, pauses, addresses, threads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.errors import SinkError, SinkPaused, SinkUnderway
from anabranch_runtime.sinks.publisher import LONGEST_PAUSE, pause_after
from anabranch_runtime.sinks.webhook import writer as writing
from anabranch_runtime.sinks.webhook.receiver import LONGEST, REFUSED, Receiver, refusal
from anabranch_runtime.sinks.webhook.signing import keys_of, signature
from anabranch_runtime.sinks.webhook.writer import WebhookWriter
from tests.support.surroundings.deliveries import sink, staged
from tests.support.surroundings.receiver import SECRET, Fault, Webhook, receiving

OWN = AccessPolicy(hosts=("127.0.0.1",))


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with receiving() as found:
        yield found


def to(url: str, **options: str) -> SinkSpec:
    return sink("webhook", **{"url": url, "secret": SECRET, "timeout": "30", **options})


Post = Callable[..., None]


@pytest.fixture
def post(tmp_path: Path) -> Post:
    """Return a function that posts the rows of a batch until the attempt ends."""

    def found(by: WebhookWriter, spec: SinkSpec, batch: int, *values: int) -> None:
        rows = pa.record_batch({"x": pa.array(values, pa.int64())})
        one = replace(staged(tmp_path, "q", spec, batch, rows), first=batch)
        while True:
            try:
                return by.write(one, "state")
            except SinkUnderway:
                time.sleep(writing.LOOK / 10)

    return found


def xs(hook: Webhook) -> list[int]:
    return [row["x"] for row in hook.rows()]


def test_signatures_are_of_standard_webhooks() -> None:
    # The example of the Standard Webhooks libraries.
    [key] = keys_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    found = signature([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature([key, key], "a", 1, b"").count("v1,") == 2


@pytest.mark.parametrize("secret", ["plain", "whsec_", "whsec_c2hvcnQ=", "whsec_??", SECRET[6:]])
def test_secrets_have_the_form_of_keys(secret: str) -> None:
    with pytest.raises(SinkError, match="random bytes") as caught:
        keys_of(secret)
    assert secret not in str(caught.value) or secret == "whsec_"


def test_requests_are_signed_and_in_order(hook: Webhook, post: Post) -> None:
    one = WebhookWriter("ns", OWN)
    post(one, to(hook.url, rows="2"), 0, 1, 2, 3, 4, 5)
    post(one, to(hook.url, rows="2"), 1, 6)
    assert xs(hook) == [1, 2, 3, 4, 5, 6]
    assert [json.loads(r.body)["part"] for r in hook.seen] == [0, 1, 2, 0]
    head = hook.seen[0].headers
    assert head["content-type"] == "application/json"
    assert head["webhook-id"] != hook.seen[1].headers["webhook-id"]


@pytest.mark.parametrize("fault", [f for f in Fault if f is not Fault.NONE])
def test_failed_requests_are_repeated_with_their_id(
    hook: Webhook, post: Post, fault: Fault
) -> None:
    faults = iter([Fault.NONE, fault])
    hook.fault = lambda _: next(faults, Fault.NONE)
    hook.delay = 3.0
    seconds = "2" if fault is Fault.SLOW else "30"
    one, spec = WebhookWriter("ns", OWN), to(hook.url, rows="2", timeout=seconds)
    # A connection that is closed after some requests is reopened at once.
    if fault not in (Fault.DROPPED, Fault.DROPPED_AFTER):
        with pytest.raises(SinkPaused, match=r"127\.0\.0\.1") as caught:
            post(one, spec, 0, 1, 2, 3, 4, 5)
        assert caught.value.remedy
    post(one, spec, 0, 1, 2, 3, 4, 5)
    assert xs(hook) == [1, 2, 3, 4, 5]
    ids = [r.headers["webhook-id"] for r in hook.seen]
    # The second request was sent twice, the first one only once.
    assert (len(ids), ids[1]) == (4, ids[2])
    assert hook.seen[1].body == hook.seen[2].body


def test_a_receiver_that_is_down_is_named(hook: Webhook, post: Post) -> None:
    one, spec = WebhookWriter("ns", OWN), to(hook.url)
    hook.stop()
    try:
        with pytest.raises(SinkPaused, match="refused") as caught:
            post(one, spec, 0, 1)
        assert (caught.value.code, caught.value.pause) == ("no-server", None)
    finally:
        hook.start()
    post(one, spec, 0, 1)
    assert xs(hook) == [1]


@pytest.mark.parametrize(
    ("status", "retry", "pause"),
    [
        (500, None, None),
        (503, "7", 7.0),
        (503, "soon", None),
        (429, "Thu, 01 Jan 1970 00:01:45 GMT", 5.0),
        (408, "-1", None),
        (425, "99999999999999999999", LONGEST),
        (400, "1", REFUSED),
        (401, None, REFUSED),
        (404, None, REFUSED),
        (410, None, REFUSED),
        (308, None, REFUSED),
    ],
)
def test_answers_decide_on_the_pause(status: int, retry: str | None, pause: float | None) -> None:
    found = refusal(status, "h.example", retry, 100.0)
    assert (found.code, found.pause) == ("sink-refused", pause)
    assert found.remedy
    assert pause_after(1, found) == (0.5 if pause is None else pause)
    assert pause_after(99, found) == (LONGEST_PAUSE if pause is None else pause)


def test_redirections_are_not_followed(hook: Webhook, post: Post, monkeypatch: Any) -> None:
    answer = Webhook.answer

    def redirect(it: Webhook, handler: Any, request: Any) -> None:
        handler.send_response(307)
        handler.send_header("Location", "http://169.254.169.254/latest")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    monkeypatch.setattr(Webhook, "answer", redirect)
    with pytest.raises(SinkPaused, match=r"307.*redirections are not followed"):
        post(WebhookWriter("ns", OWN), to(hook.url), 0, 1)
    assert not hook.seen
    monkeypatch.setattr(Webhook, "answer", answer)


@pytest.mark.parametrize(
    ("hosts", "address", "allowed"),
    [
        (("*",), "93.184.216.34", True),
        (("*",), "127.0.0.1", False),
        (("*",), "10.1.2.3", False),
        (("*.example",), "169.254.169.254", False),
        (("*",), "fd00::1", False),
        (("*",), "::ffff:192.168.0.1", False),
        (("*",), "64:ff9b::a00:1", False),
        (("*", "hooks.example"), "10.1.2.3", True),
        (("hooks.example:8443",), "10.1.2.3", True),
        (("hooks.example:80",), "10.1.2.3", False),
        (("*.example", "10.1.2.3"), "10.1.2.3", True),
        (("*.example", "localhost"), "::1", True),
    ],
)
def test_addresses_that_are_not_public_need_an_entry(
    hosts: tuple[str, ...], address: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = AccessPolicy(hosts=hosts)
    assert policy.permits_address("hooks.example", 8443, address) is allowed
    info = [(2, 1, 6, "", (address, 8443))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: info)
    one = Receiver("https://hooks.example:8443/x", policy, 1.0)
    if allowed:
        assert one._address("hooks.example", 8443) == address
        return
    with pytest.raises(SinkError, match=r"not public.*--allow-host hooks\.example:8443"):
        one.post(b"", {})


def test_one_host_takes_few_threads(
    hook: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.fault, hook.delay = lambda _: Fault.SLOW, 50.0
    one, rows = WebhookWriter("ns", OWN), pa.record_batch({"x": [1]})
    others = [
        replace(staged(tmp_path, f"q{n}", to(hook.url, timeout="60"), 0, rows), first=0)
        for n in range(writing.MOST_OF_HOST + 2)
    ]
    waiting = dict(enumerate(others))
    most = 0
    while waiting:
        if most == writing.MOST_OF_HOST and len(hook.seen) == most:
            hook.hurry.set()
        for n, delivery in list(waiting.items()):
            try:
                one.write(delivery, "state")
                del waiting[n]
            except SinkUnderway:
                most = max(most, sum(p.running for p in one._postings.values()))
    assert most == writing.MOST_OF_HOST
    assert len(hook.ledger) == len(others)
