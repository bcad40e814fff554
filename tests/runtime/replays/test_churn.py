"""Test that the runtime's state does not grow with ended queries, over many epochs."""

from __future__ import annotations

from pathlib import Path

import redis as redis_client

from anabranch_contract import codec
from anabranch_contract.protocol.activations import Activation
from anabranch_runtime.epochs.forgetting import GRACE
from tests.support.cases.states import RS, ST
from tests.support.worlds.driven import KEYS, driver, job, publish, results

#: Queries that are registered and deleted in each epoch of one batch.
COMING = 6


def test_what_is_kept_does_not_grow_with_queries_that_have_ended(url: str, tmp_path: Path) -> None:
    redis, sizes = redis_client.Redis.from_url(url), []
    one = driver(url, tmp_path, every=1)
    for epoch in range(36):
        # Half of them join other streams, so stores close and open again.
        names = {f"q{epoch:03d}x{n}": RS if n % 2 or epoch % 3 else ST for n in range(COMING)}
        publish(url, epoch, {"stays": RS, **names})
        if epoch % 7 == 6:
            # A restarted driver continues from the same state.
            one = driver(url, tmp_path, every=1)
        one.run(job(epoch))
        state = one.state
        assert len(state.queries) <= 1 + COMING * (GRACE + 1)
        progress = redis.get(KEYS.runtime)
        assert isinstance(progress, bytes)
        histories = sum(len(s.history) for s in state.streams.values())
        choice = max((tmp_path / "state" / "journal").iterdir()).stat().st_size
        rulesets = len(list((tmp_path / "state" / "rulesets").iterdir()))
        sizes.append((len(codec.dumps(state)), len(progress), histories, choice, rulesets))
    for early, late in zip(sizes[15:18], sizes[33:36], strict=True):
        # Segments and epochs' starts add some bytes; 108 queries have ended in between.
        assert late[0] <= early[0] + 18 * 250
        assert late[1] <= early[1] + 18 * 30
        assert late[2] <= early[2]
        assert late[3] <= early[3] + 200
        assert late[4] <= early[4]
    # The control plane has all queries, as they ended.
    known = redis.hgetall(KEYS.activations)
    assert isinstance(known, dict)
    assert len(known) == 1 + 36 * COMING
    gone = Activation.loads(known[b"q000x1"])
    assert (gone.activated_batch, gone.expired_batch, gone.results) == (0, 1, 1)
    assert results(tmp_path, "q005x1") == [*range(5), *[5] * 6]
    assert len(results(tmp_path, "stays")) == sum(2 * b + 1 for b in range(36))
