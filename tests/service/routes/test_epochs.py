from __future__ import annotations

from anabranch_contract.protocol.progress import Progress, Resources
from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service, eventually


def test_nothing_has_been_published_yet(service: Service) -> None:
    assert service.get("/v1/epochs") == {"items": [], "next_cursor": None}
    assert service.get("/v1/epochs/current", 404)["code"] == "no-epoch"
    assert service.get("/v1/epochs/0", 404)["code"] == "unknown-epoch"
    assert service.get("/v1/epochs/0/ruleset", 404)["code"] == "unknown-epoch"
    assert service.get("/v1/epochs/-1", 422)["errors"][0]["field"] == "number"
    assert service.get("/v1/epochs/first", 422)["errors"][0]["field"] == "number"


def test_epochs_are_listed_newest_first_in_pages(service: Service) -> None:
    for epoch in range(-1, 4):
        service.plan(epoch)
    seen, cursor = [], ""
    while True:
        page = service.get(f"/v1/epochs?limit=2{cursor}")
        seen += [item["epoch"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [4, 3, 2, 1, 0]


def test_an_epoch_knows_when_it_started(shop: Service) -> None:
    shop.plan(-1)
    shop.plan(0)
    assert shop.get("/v1/epochs/0")["first_batch"] is None
    before = shop.get("/v1/epochs/current")
    assert (before["running"], before["epoch"]["epoch"], before["runtime"]) == (-1, 0, None)
    shop.progress(
        Progress(
            "running",
            committed=5,
            epoch=1,
            epoch_starts={"0": 0, "1": 4},
            ruleset_epoch=1,
            streams={"orders": {"input": 10, "late": 1}, "items": {"input": 5}},
            resources=Resources(1234),
        )
    )
    assert shop.get("/v1/epochs/1")["first_batch"] == 4
    assert [e["first_batch"] for e in shop.get("/v1/epochs")["items"]] == [4, 0]
    current = shop.get("/v1/epochs/current")
    assert (current["running"], current["epoch"]["epoch"]) == (1, 1)
    assert current["runtime"]["input_tuples"] == 15
    assert current["runtime"]["late_tuples"] == 1
    assert current["runtime"]["state_bytes"] == 1234


def test_a_summary_of_the_running_epoch_has_no_plan(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    whole = shop.get("/v1/epochs/current")
    found = shop.get("/v1/epochs/current?detail=summary")
    left_out = ("explain", "shares", "diff", "reasons", "tables")
    assert whole["epoch"]["explain"]["steps"]
    assert whole["epoch"]["shares"]
    assert [found["epoch"].pop(name) for name in left_out] == [
        {"totals": whole["epoch"]["explain"]["totals"]},
        *[None] * 4,
    ]
    for name in left_out:
        del whole["epoch"][name]
    assert found == whole
    shop.get("/v1/epochs/current?detail=all", 422)


def test_a_summary_of_an_epoch_has_one_query_s_part_of_the_plan(shop: Service) -> None:
    for number in range(25):
        sql = CHAIN if number == 7 else PAIR.replace("SELECT ", f"SELECT {number} AS number, ")
        shop.post("/v1/queries", {"id": f"q{number:02d}", "sql": sql})
    shop.plan(-1)
    eventually(lambda: shop.get("/v1/epochs/0")["explained"], "the epoch is explained")
    whole = shop.get("/v1/epochs/0")
    brief = shop.get("/v1/epochs/0?detail=summary")
    assert whole["reasons"]["totals"]["shared"] > 0
    assert brief["reasons"] is None
    assert brief["explain"]["queries"] == brief["explain"]["steps"] == []
    assert brief["queries"] == whole["queries"]
    assert brief["explain"]["totals"] == whole["explain"]["totals"]
    assert brief["shares"]["queries"] == whole["shares"]["queries"][:20]
    assert brief["shares"]["omitted"] == 5
    run = whole["queries"][3]
    part = shop.get(f"/v1/epochs/0?detail=summary&query={run}")["explain"]
    assert [query["id"] for query in part["queries"]] == [run]
    (query,) = part["queries"]
    used = {step for order in query["orders"] for step in order["steps"]}
    assert used <= {step["id"] for step in part["steps"]}
    assert len(part["steps"]) < len(whole["explain"]["steps"])
    for store in part["stores"]:
        (full,) = [one for one in whole["explain"]["stores"] if one["label"] == store["label"]]
        assert store["used_by"] == full["used_by"][:2]
        assert store["users"] == len(full["used_by"])


def test_started_epochs_and_rulesets_can_be_cached_for_ever(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    fresh = shop.http.get("/v1/epochs/0")
    assert fresh.headers["cache-control"] == "no-cache"
    shop.progress(Progress("running", committed=1, epoch=0, epoch_starts={"0": 0}))
    for path in ("/v1/epochs/0", "/v1/epochs/0/ruleset"):
        first = shop.http.get(path)
        assert "immutable" in first.headers["cache-control"]
        tag = first.headers["etag"]
        again = shop.http.get(path, headers={"If-None-Match": f'"other", {tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert shop.http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    assert shop.http.get("/v1/epochs/0").headers["etag"] != fresh.headers["etag"]


def test_the_ruleset_is_what_workers_fetch(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    text = shop.http.get("/v1/epochs/0/ruleset").text
    assert text == shop.redis.get(shop.keys.ruleset(0))
    assert shop.get("/v1/epochs/0")["ruleset_digest"]


def test_the_same_plan_has_the_same_digest(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    for epoch in (-1, 0):
        shop.plan(epoch)
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(1)
    newest, same, first = shop.get("/v1/epochs")["items"]
    assert first["plan"] == same["plan"] != newest["plan"]
    assert first["changes"] is None
    assert set(same["changes"].values()) == {0}
    assert newest["changes"]["steps_added"] > 0
    assert [one["revisions"] for one in (newest, same, first)] == [0, 0, 0]


def test_lists_do_not_read_records_that_have_a_summary(shop: Service) -> None:
    for epoch in (-1, 0):
        shop.plan(epoch)
    before = shop.get("/v1/epochs")
    shop.redis.set(shop.keys.epoch(0), "not read")
    assert shop.get("/v1/epochs") == before


def test_two_epochs_are_compared(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": f"{PAIR} WHERE o.total > 1000"})
    shop.plan(-1)
    shop.plan(0)
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(1)
    shop.call("DELETE", "/v1/queries/pair", 202)
    shop.plan(2)
    assert [e["epoch"] for e in shop.get("/v1/epochs")["items"]] == [3, 2, 1, 0]
    whole = shop.get("/v1/epochs/3/diff?from=0")
    assert (whole["queries_added"], whole["queries_removed"]) == (["chain"], ["pair"])
    assert whole["diff"]["epoch"] == 0
    gone = [entry["label"] for entry in whole["diff"]["steps"]["removed"]]
    assert any("(orders where total > 1000" in label for label in gone)
    assert not any("[" in label for label in gone)
    back = shop.get("/v1/epochs/0/diff?from=3")
    assert back["diff"]["totals"]["added"]["count"] == whole["diff"]["totals"]["removed"]["count"]
    assert back["diff"]["cost_before"] == whole["diff"]["cost_after"]
    # By default it is compared with the epoch before; two epochs with the same plan do not differ.
    assert shop.get("/v1/epochs/1/diff")["diff"]["unchanged"]
    assert shop.get("/v1/epochs/0/diff")["diff"]["unchanged"]
    assert shop.get("/v1/epochs/9/diff", 404)["code"] == "unknown-epoch"
    assert shop.get("/v1/epochs/1/diff?from=9", 404)["code"] == "unknown-epoch"


def test_lists_have_the_changes_of_queries_and_names_only_in_full(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    shop.plan(0)
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(1)
    shop.http.delete("/v1/queries/pair")
    shop.plan(2)
    full = shop.get("/v1/epochs")["items"]
    assert [(one["queries_added"], one["queries_removed"]) for one in full] == [
        ([], ["pair"]),
        (["chain"], []),
        ([], []),
        (["pair"], []),
    ]
    assert [one["query_count"] for one in full] == [1, 2, 1, 1]
    brief = shop.get("/v1/epochs?detail=summary")["items"]
    assert brief == [{**one, "queries": []} for one in full]
    # The last entry of a page has its changes, too.
    assert shop.get("/v1/epochs?limit=2&detail=summary")["items"] == brief[:2]
