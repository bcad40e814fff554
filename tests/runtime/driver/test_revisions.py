"""Tests of revisions of rulesets in the driver: adopted between batches, skipped, refused, waited
for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from anabranch_contract import codec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.progress import Mode, Progress, RevisionCounts
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_runtime.errors import PipelineError
from tests.support.cases.states import RS, ST, rules
from tests.support.worlds.driven import (
    KEYS,
    Killed,
    boundaries,
    die,
    driver,
    expected,
    job,
    publish,
    results,
)


def revise(
    url: str,
    name: RulesetId,
    *,
    answered: int = 0,
    digest: str | None = None,
    document: Ruleset | None = None,
) -> None:
    """Publish a revision of the ruleset of ``driven.publish``, as the service does."""
    made = document or replace(rules(name.epoch, {"q": RS}), revision=name.revision)
    text = rulesets.dumps(made)
    connection = redis_client.Redis.from_url(url)
    connection.set(KEYS.ruleset(name), text)
    answer = RevisionAnswer(*name, digest or rulesets.digest(text), answered)
    connection.set(KEYS.revision, answer.dumps())


def progress(url: str) -> Progress:
    text = redis_client.Redis.from_url(url).get(KEYS.runtime)
    assert text is not None
    return Progress.loads(text)


def test_the_newest_revision_is_taken_between_two_batches(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    one.run(job(0))
    revise(url, RulesetId(0, 1))
    revise(url, RulesetId(0, 2))
    one.run(job(1))
    assert one.state.ruleset == (0, 2)
    assert one.state.epoch_starts == ((0, 0),)
    one.run(job(2))

    assert one.state.ruleset == (0, 2)
    assert results(tmp_path) == expected(3)
    told = progress(url)
    assert (told.epoch, told.ruleset_epoch, told.revision) == (0, 0, 2)
    assert told.revisions == RevisionCounts(taken=1)
    assert driver(url, tmp_path, Mode.LIVE).state == one.state


def test_a_batch_that_was_begun_is_repeated_by_the_rules_it_had(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    one.run(job(0))
    revise(url, RulesetId(0, 1))
    with pytest.raises(Killed):
        one.run(die())
    revise(url, RulesetId(0, 2))

    again = driver(url, tmp_path, Mode.LIVE, every=10)
    again.run(job(1))
    assert again.state.ruleset == (0, 1)
    again.run(job(2))
    assert again.state.ruleset == (0, 2)
    assert results(tmp_path) == expected(3)


def test_it_is_kept_beside_the_state_when_redis_loses_it(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    one.run(job(0))
    revise(url, RulesetId(0, 1))
    one.run(job(1))
    connection = redis_client.Redis.from_url(url)
    document = connection.get(KEYS.ruleset(RulesetId(0, 1)))
    connection.delete(KEYS.ruleset(RulesetId(0, 1)), KEYS.revision)

    again = driver(url, tmp_path, Mode.LIVE, every=10)
    again.run(job(2))

    assert again.state.ruleset == (0, 1)
    assert rulesets.loads(connection.get(KEYS.ruleset(RulesetId(0, 1))) or b"") == rulesets.loads(
        document or b""
    )
    # Only epochs' own rulesets are listed as published.
    assert connection.zrange(KEYS.published, 0, -1) == [b"0"]
    assert results(tmp_path) == expected(3)


def test_one_that_was_never_taken_is_no_reason_to_refuse_a_start(url: str, tmp_path: Path) -> None:
    """A driver has saved it and ended before any batch was begun by it."""
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    one.run(job(0))
    stale = replace(rules(0, {"q": RS, "p": ST}), revision=1)
    one.durability.rulesets.keep(stale, rulesets.dumps(stale))
    revise(url, RulesetId(0, 1))

    again = driver(url, tmp_path, Mode.LIVE, every=10)
    again.run(job(1))

    assert again.state.ruleset == (0, 1)
    assert set(again.state.queries) == {"q"}
    assert results(tmp_path) == expected(2)


def test_the_next_epoch_goes_on_by_the_revision_where_nothing_newer_is_there(
    url: str, tmp_path: Path
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=2)
    one.run(job(0))
    revise(url, RulesetId(0, 1))
    for batch in range(1, 4):
        one.run(job(batch))

    assert (one.state.epoch, one.state.ruleset) == (1, (0, 1))
    revise(url, RulesetId(0, 2))
    one.run(job(4))
    assert (one.state.epoch, one.state.ruleset) == (2, (0, 1))
    one.run(job(5))
    assert (one.state.epoch, one.state.ruleset) == (2, (0, 2))
    assert results(tmp_path) == expected(6)


def test_a_revision_of_an_epoch_that_is_over_is_passed_over(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    publish(url, 1)
    one = driver(url, tmp_path, Mode.LIVE, every=1)
    one.run(job(0))
    one.run(job(1))
    publish(url, 2)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    one.run(job(2))
    revise(url, RulesetId(1, 1))
    one.run(job(3))
    one.run(job(4))

    assert one.state.ruleset == (2, 0)
    assert progress(url).revisions == RevisionCounts(passed_over=1)
    assert results(tmp_path) == expected(5)


def carry_over(url: str, *names: RulesetId, digest: str | None = None) -> None:
    """Publish revisions of rulesets whose epochs have not begun."""
    answer = RevisionAnswer(0)
    connection = redis_client.Redis.from_url(url)
    for name in names:
        text = rulesets.dumps(replace(rules(name.epoch, {"q": RS}), revision=name.revision))
        connection.set(KEYS.ruleset(name), text)
        answer = answer.revised(name, digest or rulesets.digest(text))
    connection.set(KEYS.revision, answer.dumps())


def test_an_epoch_begins_with_the_revision_of_its_ruleset(url: str, tmp_path: Path) -> None:
    for epoch in range(3):
        publish(url, epoch)
    one = driver(url, tmp_path, Mode.LIVE, every=2)
    one.run(job(0))
    carry_over(url, RulesetId(1, 1), RulesetId(2, 1), RulesetId(2, 2))
    went_by = []
    for batch in range(1, 6):
        one.run(job(batch))
        went_by.append(tuple(one.state.ruleset))
    assert went_by == [(0, 0), (1, 1), (1, 1), (2, 2), (2, 2)]
    assert progress(url).revisions == RevisionCounts(taken=2)
    assert results(tmp_path) == expected(6)


@pytest.mark.parametrize("after", [False, True])
def test_an_epoch_that_was_begun_by_a_revision_goes_on_by_it_after_a_kill(
    url: str, tmp_path: Path, *, after: bool
) -> None:
    """Killed in the epoch's first batch, or between it and the next; Redis has lost the answer
    since.
    """
    for epoch in range(2):
        publish(url, epoch)
    one = driver(url, tmp_path, Mode.LIVE, every=2)
    one.run(job(0))
    one.run(job(1))
    carry_over(url, RulesetId(1, 1))
    if after:
        one.run(job(2))
    else:
        with pytest.raises(Killed):
            one.run(die())
    redis_client.Redis.from_url(url).delete(KEYS.ruleset(RulesetId(1, 1)), KEYS.revision)

    again = driver(url, tmp_path, Mode.LIVE, every=2)
    if not after:
        again.run(job(2))
    again.run(job(3))
    assert again.state.ruleset == (1, 1)
    assert results(tmp_path) == expected(4)


def test_an_epoch_begins_with_its_ruleset_where_the_revision_does_not_fit(
    url: str, tmp_path: Path
) -> None:
    for epoch in range(2):
        publish(url, epoch)
    one = driver(url, tmp_path, Mode.LIVE, every=1)
    one.run(job(0))
    carry_over(url, RulesetId(1, 1), digest="0" * 32)
    one.run(job(1))
    assert one.state.ruleset == (1, 0)
    assert progress(url).revisions.refused == 1
    assert results(tmp_path) == expected(2)


@pytest.mark.parametrize(
    ("digest", "document", "code"),
    [
        ("0" * 32, None, "revision-digest-differs"),
        (None, replace(rules(0, {"q": RS, "p": ST}), revision=1), "revision-differs"),
        (
            None,
            replace(rules(0, {"q": RS}, parallelism=3), revision=1),
            "revision-stores-differ",
        ),
    ],
)
def test_one_that_does_not_fit_is_refused_and_the_old_rules_go_on(
    url: str, tmp_path: Path, digest: str | None, document: Ruleset | None, code: str
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    one.run(job(0))
    revise(url, RulesetId(0, 1), digest=digest, document=document)
    one.run(job(1))
    one.run(job(2))

    assert one.state.ruleset == (0, 0)
    told = progress(url)
    assert told.revisions.refused == 1
    assert told.revisions.reason.startswith("0.1: ")
    assert code in told.revisions.reason
    revise(url, RulesetId(0, 2))
    one.run(job(3))
    assert one.state.ruleset == (0, 2)
    assert results(tmp_path) == expected(4)


def test_one_that_is_not_there_is_refused(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    one.run(job(0))
    redis_client.Redis.from_url(url).set(KEYS.revision, RevisionAnswer(0, 1, "x").dumps())
    one.run(job(1))
    redis_client.Redis.from_url(url).set(KEYS.revision, "{")
    one.run(job(2))

    assert one.state.ruleset == (0, 0)
    assert "no-ruleset" in progress(url).revisions.reason
    assert results(tmp_path) == expected(3)


def test_a_replay_waits_for_the_answer_before_every_nth_batch(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.STEP, every=8, revise_batches=2)
    one.run(job(0))
    one.run(job(1))
    with pytest.raises(PipelineError) as caught:
        one.run(job(2))
    assert caught.value.code == "no-revision"
    revise(url, RulesetId(0, 1), answered=2)
    one.run(job(2))
    one.run(job(3))

    assert one.state.ruleset == (0, 1)
    found = redis_client.Redis.from_url(url).lrange(KEYS.interims, 0, -1)
    interims = [Interim.loads(text) for text in found]
    assert [(i.next_batch, i.batches, i.revision) for i in interims] == [(2, 2, 0)]
    assert results(tmp_path) == expected(4)


def test_the_measurements_are_reported_again_after_a_restart(url: str, tmp_path: Path) -> None:
    """The driver's counts are lost with it; its request for a revision must not be."""
    publish(url, 0)
    driver(url, tmp_path, Mode.STEP, every=8, revise_batches=1).run(job(0))
    again = driver(url, tmp_path, Mode.STEP, every=8, revise_batches=1)
    with pytest.raises(PipelineError):
        again.run(job(1))
    connection = redis_client.Redis.from_url(url)
    (text,) = connection.lrange(KEYS.interims, 0, -1)
    assert Interim.loads(text).next_batch == 1
    revise(url, RulesetId(0, 1), answered=1)
    again.run(job(1))

    assert again.state.ruleset == (0, 1)
    assert results(tmp_path) == expected(2)


def test_statistics_of_an_epoch_have_the_samples_of_all_its_rulesets(
    url: str, tmp_path: Path
) -> None:
    publish(url, 0)
    plain = driver(url, tmp_path / "plain", Mode.LIVE, every=4)
    for batch in range(4):
        plain.run(job(batch))
    wanted = boundaries(url)[-1].snapshot
    redis_client.Redis.from_url(url).flushall()

    publish(url, 0)
    one = driver(url, tmp_path / "revised", Mode.LIVE, every=4)
    for batch in range(4):
        one.run(job(batch))
        revise(url, RulesetId(0, batch + 1))
    found = boundaries(url)[-1].snapshot

    assert wanted is not None
    assert found is not None
    # The first batch finds nothing, so its probes alone are no sample.
    counted = [
        [(s["pairs"], s["hits"]) for s in codec.loads(text, dict[str, Any])["steps"]]
        for text in (found, wanted)
    ]
    assert counted[0] == counted[1] == [(6.0, 6.0), (6.0, 6.0)]
