"""Bytes between hosts on each edge, measured and predicted by the planner.

`python -m benchmarks.cluster.traffic [--json] [--hosts 3] [--rows 10000] [--scale 0.01]`

*Predicted and sent*: a replay on executors with a core and a directory each, on one machine
(Spark's ``local-cluster``); the store is a folder. The first epoch (0) is planned before the hosts
are known. For each later epoch, the bytes of each edge are compared with the predictions of the
epoch's plan. Epoch 1 is planned by the means of one epoch that began with empty stores; forecasts
begin with epoch 2. There are two workloads: six queries over three of ten streams each
(``benchmarks.runtime.workload``), and five queries of TPC-H (including text columns). All results
are compared with DuckDB's.

*Joint plans*: for random problems (``benchmarks.planner``), the ratio of the predicted bytes of the
joint plan to the bytes of plans in which each store has one copy, partitioned by a random
attribute. Such a plan has the cheapest probe orders for its store copies and no intermediate
results; its bytes are the mean of ten draws.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from anabranch_client.replay import tpch
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import AttrRef, JoinQuery, KeyClass, Label
from anabranch_contract.queries.mirs import Mir, MirId
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.passes import EpochRequest, make_rules, optimise
from anabranch_planner.plans.optimise import Options, PlanRequest, assemble, solve
from anabranch_planner.plans.traffic import traffic
from anabranch_planner.search.building.builder import build_problem
from benchmarks.cluster.surroundings import environment
from benchmarks.command import Benchmark, made, run_benchmark
from benchmarks.planner.runs import Drawn, Shape, draw
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.runtime import workload
from benchmarks.session import session

EPOCHS, EPOCH_BATCHES = 5, 8
#: First epoch that is planned with forecasts.
FORECAST = 2
QUERIES = 6
#: Relative error up to which a prediction counts as good.
WITHIN = 0.15
#: Minimum bytes of an edge in an epoch; edges with fewer bytes count in sums only.
LEAST = 10_000
SHAPES = (Shape(10, 6, 3), Shape(10, 10, 4), Shape(20, 20, 3))
DRAWS = 10


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=3, help="executors")
    parser.add_argument("--rows", type=int, default=10_000, help="of a batch, all ten streams")
    parser.add_argument("--scale", type=float, default=0.01, help="of TPC-H")
    parser.add_argument("--parallelism", type=int, default=12, help="partitions per store")
    parser.add_argument("--seeds", type=int, default=5, help="random problems of each shape")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Return the bytes by epoch and edge, and of joint plans and plans with random attributes."""
    batches = EPOCHS * EPOCH_BATCHES
    each = options.rows // workload.STREAMS * batches
    chains = workload.generate(home / "chains", each, batches), workload.queries(QUERIES)
    queries = tpch.generate(made(home / "tpch"), options.scale, batches), tpch.QUERIES
    return {
        "epochs": {
            "chains": _run(made(home / "chains-run"), *chains, options),
            "TPC-H": _run(made(home / "tpch-run"), *queries, options),
        },
        "plans": {
            str(shape): [
                _against_random(draw(shape, seed), seed, options) for seed in range(options.seeds)
            ]
            for shape in SHAPES
        },
    }


def _run(
    home: Path,
    streams: tuple[RecordedStream, ...],
    queries: tuple[DemoQuery, ...],
    options: argparse.Namespace,
) -> list[dict[str, dict[str, int]]]:
    with (
        environment(
            ANABRANCH_OBJECT_STORE=(home / "store").as_uri(), ANABRANCH_CACHE_DIRECTORY="cache"
        ),
        session(
            home / "system",
            streams,
            queries,
            mode="step",
            master=f"local-cluster[{options.hosts},1,1024]",
            parallelism=options.parallelism,
            epoch_batches=EPOCH_BATCHES,
        ) as system,
    ):
        system.start()
        system.gate(None)
        system.finish(queries)
        found = []
        for epoch in range(1, EPOCHS):
            edges = system.client.epoch_statistics(epoch).edges
            found.append(
                {
                    name: {
                        "sent": edge.sent_bytes,
                        "predicted": round(edge.predicted_sent_bytes or 0.0),
                        "tuples": edge.sent,
                        "predicted_tuples": round(edge.predicted_sent or 0.0),
                    }
                    for name, edge in edges.items()
                }
            )
            sent, predicted = (sum(e[x] for e in found[-1].values()) for x in ("sent", "predicted"))
            tell(f"epoch {epoch}: {sent:,} bytes, {predicted:,} predicted")
    return found


# --- joint plans compared with random partition attributes --------------------------------------


@dataclass(frozen=True, slots=True)
class _OneCopyEach:
    """Limits a plan to base stores with one given copy each, without intermediate results."""

    copies: Mapping[MirId, AttrRef]

    def partitions(self, mir: Mir) -> tuple[AttrRef | None, ...]:
        """Return the partition attribute of a base store's only copy; none for others."""
        return (self.copies[mir.id],) if mir.is_base else ()

    def serves(self, query: JoinQuery, mir: Mir) -> bool:
        """Return False: queries probe no intermediate results."""
        del query, mir
        return False

    def feeds(self, larger: Mir, mir: Mir) -> bool:
        """Return False: the maintenance of intermediate results probes none either."""
        del larger, mir
        return False

    def holds(self, classes: Sequence[KeyClass], mir: Mir, origin: tuple[Label, int]) -> bool:
        """Return False: no store is assumed to have all values of another relation."""
        del classes, mir, origin
        return False


def _against_random(drawn: Drawn, seed: int, options: argparse.Namespace) -> dict[str, float]:
    exchange = ExchangeModel(options.hosts, {})
    known = replace(drawn.statistics, exchange=exchange)
    chosen = Options(parallelism=options.parallelism)
    queries = tuple(drawn.queries)
    model = CostModel(known, parallelism=options.parallelism, bounds=LoosestBounds(queries))

    def sent(plan: Plan) -> float:
        rules = make_rules(
            plan,
            EpochRequest(
                queries=queries,
                streams=drawn.streams,
                statistics=known,
                epoch=0,
                parallelism=options.parallelism,
                sinks={},
            ),
        )
        return sum(one.bytes for one in traffic(rules.ruleset, queries, model, exchange).values())

    whole = build_problem(queries, model, mir=False)
    request, random = PlanRequest(queries, known, chosen), Random(seed)
    others = []
    for _ in range(DRAWS):
        copies = {
            whole.graph.mir(store).id: random.choice(attributes)
            for store, attributes in whole.partitions.items()
        }
        problem = build_problem(queries, model, mir=False, there=_OneCopyEach(copies))
        others.append(sent(assemble(solve(problem, request), request)))
    joint = sent(optimise(queries, known, chosen))
    return {"joint": round(joint), "random": round(statistics.mean(others))}


def compared(entry: dict[str, Any]) -> dict[str, float]:
    """Return the share of edges with a good prediction, among edges with at least :data:`LEAST`
    bytes: from epochs with forecasts, for edges after probes of relations and of intermediate
    results; and of all epochs, for all edges.
    """
    misses: dict[str, list[float]] = {"relations": [], "results": [], "all": []}
    for epochs in entry["epochs"].values():
        for epoch, edges in enumerate(epochs, start=1):
            for name, edge in _large(edges).items():
                miss = abs(edge["predicted"] / max(edge["sent"], 1) - 1)
                misses["all"].append(miss)
                if epoch >= FORECAST:
                    misses["results" if _probes_result(name) else "relations"].append(miss)
    return {kind: _within(found) for kind, found in misses.items()}


def _probes_result(edge: str) -> bool:
    """Whether the step that leads to the edge probes an intermediate result."""
    return "*" in edge.rpartition(">")[2]


def _within(misses: list[float]) -> float:
    return sum(miss <= WITHIN for miss in misses) / max(len(misses), 1)


def _large(edges: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    return {n: e for n, e in sorted(edges.items()) if max(e["sent"], e["predicted"]) >= LEAST}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: by epoch, by edge of the last epoch, and joint plans by shape."""
    grids = []
    for name, epochs in entry["epochs"].items():
        rows = []
        for epoch, edges in enumerate(epochs, start=1):
            sent, predicted = (sum(e[x] for e in edges.values()) for x in ("sent", "predicted"))
            cells = [str(epoch), f"{sent:,}", f"{predicted:,}"]
            for results in (False, True):
                some = [e for n, e in _large(edges).items() if _probes_result(n) == results]
                misses = sorted(abs(e["predicted"] / max(e["sent"], 1) - 1) for e in some)
                within = f"{sum(miss <= WITHIN for miss in misses)} of {len(misses)}"
                cells += [within, f"{misses[len(misses) // 2]:.1%}" if misses else "–"]
            rows.append(tuple(cells))
        columns = (
            "epoch",
            "bytes",
            "predicted",
            "edges to relations within 15 %",
            "median miss",
            "to intermediate results",
            "median miss",
        )
        grids.append(Grid(f"{name}, by epoch", columns, tuple(rows)))
        of_edges = [
            (
                f"`{edge}`",
                f"{one['tuples']:,}",
                f"{one['predicted_tuples']:,}",
                f"{one['sent']:,}",
                f"{one['predicted']:,}",
            )
            for edge, one in _large(epochs[-1]).items()
        ]
        headings = ("edge", "tuples", "predicted", "bytes", "predicted")
        grids.append(Grid(f"{name}, edges of the last epoch", headings, tuple(of_edges)))
    plans = []
    for shape, runs in entry["plans"].items():
        ratios = sorted(one["joint"] / one["random"] for one in runs)
        middle = f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
        plans.append((shape, str(len(ratios)), middle))
    names = ("problem", "seeds", "bytes, over plans by random attributes")
    return [*grids, Grid("Joint plans", names, tuple(plans))]


BENCHMARK = Benchmark("traffic", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("cluster", BENCHMARK, None, lambda _: None))
