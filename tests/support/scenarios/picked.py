"""Random scenarios whose epochs and revisions are planned by dpPick, with random statistics.

Additions are drawn by a separate generator, so that the rest of a seed's scenario stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import yaml

from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.revise import RevisionRequest, revise
from anabranch_planner.replan.running import running_plan
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import read_document
from tests.support.scenarios.rows import RECORDED, Size


def generate_picked(seed: int, folder: Path, size: Size = RECORDED) -> Generated:
    """Generate the scenario of ``seed`` under dpPick; some begin or end with another optimiser."""
    generated, rng = generate(seed, folder, size), Random(f"picked {seed}")
    document = read_document(generated.path)
    other, drawn = rng.choice(["clash", "shared", "individual"]), rng.random()
    batch = rng.randint(2, 4)
    document["optimizer"] = {0: "dppick"}
    if drawn < 0.25:
        document["optimizer"] = {0: other, batch: "dppick"}
    elif drawn < 0.4:
        document["optimizer"] = {0: "dppick", batch: other}
    generated.path.write_text(yaml.safe_dump(document, sort_keys=False, width=100))
    return generated


def picked_revision(
    running: Ruleset, queries: Sequence[JoinQuery], rng: Random, number: int
) -> Ruleset | None:
    """DpPick's revision of ``running`` for random statistics; None: found none that is cheaper."""
    plan = running_plan(running, queries, Optimizer.DPPICK)
    relations = sorted({relation.id for query in queries for relation in query.relations})
    for _ in range(4):
        sizes = {relation: 10 ** rng.uniform(0, 3) for relation in relations}
        keys = {relation: max(1.0, sizes[relation] * rng.random()) for relation in relations}
        found = revise(
            RevisionRequest(
                statistics=Statistics(sizes, every_distinct=keys),
                running=plan,
                number=number,
                options=Options(optimizer=Optimizer.DPPICK),
            )
        )
        if found is not None:
            return found.ruleset
    return None
