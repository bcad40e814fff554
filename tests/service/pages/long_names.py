"""Eight queries with long realistic names, planned and measured, for tests of pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch_contract.packed import unpack
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.protocol.intake import InputProgress, StreamIntake
from anabranch_contract.protocol.progress import Progress, Resources
from anabranch_contract.protocol.state_report import StoreReport, TableReport
from tests.service.conftest import CHAIN, PAIR
from tests.service.planning.test_rations import period
from tests.service.routes.test_state import report, store
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Page

LONGEST = "orders_with_customers_and_late_shipments_by_region_2026"
VIEW = "revenue-by-city"
QUERIES = {
    LONGEST: CHAIN,
    "late-shipments-by-customer": PAIR,
    "unpaid_orders_over_a_thousand_euros": PAIR + " WHERE o.total > 1000",
    "items-of-customers-in-Berlin": CHAIN + " WHERE c.city = 'Berlin'",
    "items-of-customers-in-Saint-Remy-en-Bouzemont": CHAIN
    + " WHERE c.city = 'Saint-Remy-en-Bouzemont-Saint-Genest-et-Isson'",
    "big-baskets.2026": CHAIN + " WHERE o.total > 500",
    "p99-audit": PAIR + " WHERE c.city LIKE 'A%' AND o.total BETWEEN 10 AND 20",
    VIEW: "SELECT c.city, count(*) AS orders, sum(o.total) AS revenue FROM orders o "
    "JOIN customers c ON o.customer_id = c.customer_id GROUP BY c.city",
}


def run(shop: Service) -> None:
    """Register the queries, plan them, and report measurements as a runtime would."""
    for name, sql in QUERIES.items():
        shop.post("/v1/queries", {"id": name, "sql": sql})
    shop.plan(-1)
    rules = rulesets.loads(unpack(str(shop.redis.get(shop.keys.ruleset(RulesetId(0))))))
    shop.redis.rpush(shop.keys.interims, period(rules).dumps())
    seen = {alias: Visibility(0, None) for alias in ("o", "c", "i")}
    for number, name in enumerate(QUERIES):
        shop.activate(name, Activation(0, seen, results=1234 * (number + 1)))
    shop.progress(
        Progress(
            "running",
            committed=40,
            epoch=0,
            ruleset_epoch=0,
            epoch_starts={"0": 0},
            results={name: 1234 * (number + 1) for number, name in enumerate(QUERIES)},
            streams={"orders": {"input": 9000, "late": 2}},
            input=InputProgress({"orders": StreamIntake(120, 1.5)}),
            resources=Resources(batch_seconds=0.42),
        )
    )
    cost = TableReport(
        VIEW, 1_042, 39, 5_000, 0, added=800, seconds=0.4, bytes=3 << 20, common=VIEW
    )
    found = replace(report(*map(_store, rules.stores)), tables=(cost,))
    shop.redis.set(shop.keys.state, found.dumps())


def _store(spec: Any) -> StoreReport:
    found = store(str(spec.id), 1000)
    fields: dict[str, Any] = {
        "mir": str(spec.mir),
        "members": tuple(map(str, spec.members)) if len(spec.members) > 1 else (),
        "queries": tuple(QUERIES),
    }
    return StoreReport(**{**{f: getattr(found, f) for f in found.__slots__}, **fields})


def nothing_is_cut(page: Page) -> None:
    """Check that nothing is wider than the window, and no text is wider than its element."""
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    cut = page.evaluate(
        """() => [...document.querySelectorAll("main *, header *")]
          .filter((e) => e.childElementCount === 0 && e.textContent.trim() && e.checkVisibility())
          .filter((e) => !e.closest(".scroll, svg, pre, textarea, select, .unseen, .tree, .map"))
          .filter((e) => e.getBoundingClientRect().right > innerWidth + 1
            || (getComputedStyle(e).overflow !== "visible" && e.scrollWidth > e.clientWidth + 1))
          .map((e) => `${e.tagName} ${e.textContent.slice(0, 60)}`)"""
    )
    assert cut == []
