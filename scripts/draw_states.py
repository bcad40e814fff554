"""Draw the planner's graph of states for a small problem file.

``python scripts/draw_states.py PROBLEM.yaml > PICTURE.svg``

There is one panel per starting relation, with a column per number of joined relations. Edges of the
joint plan are bold. The picture in docs/images is of docs/examples/problems/clash-example-1.yaml.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from anabranch_contract.plans.plan import Objective
from anabranch_planner.command.problem_file import parse_problem
from anabranch_planner.cost.model import CostModel
from anabranch_planner.documents.yaml import load_yaml
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.problem import Graph, PlanProblem

PANEL, ROW, MARGIN, BOX, HEIGHT = 500, 74, 20, 100, 34
STYLE = """
      .panel { fill: #eaf1fb; stroke: #7aa2d6; stroke-width: 1.5; rx: 12px }
      .name { font-size: 15px; font-weight: 700; fill: #24528f }
      .state { fill: #fff; stroke: #7aa2d6; stroke-width: 1.25; rx: 7px }
      .goal { stroke: #24528f; stroke-width: 2 }
      .t { font-size: 13.5px; font-weight: 600; fill: #1f2933; text-anchor: middle }
      .edge { stroke: #9aa5b1; stroke-width: 1.6; fill: none; marker-end: url(#tip) }
      .used { stroke: #0b7285; stroke-width: 3; marker-end: url(#tip-used) }
      .label { font-size: 12px; fill: #3d4a57; text-anchor: middle; paint-order: stroke;
               stroke: #eaf1fb; stroke-width: 5px }
      .bold { font-weight: 700; fill: #0b7285 }
"""


@dataclass(slots=True)
class Panel:
    """Drawing of one starting relation: its states by level, and the edges between them."""

    start: str
    levels: dict[int, dict[int, None]] = field(default_factory=lambda: defaultdict(dict))
    edges: list[int] = field(default_factory=list)
    goals: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


def panels(problem: PlanProblem) -> list[Panel]:
    """Return the problem's graph as panels, one per starting relation."""
    graph = problem.graph
    found: dict[str, Panel] = {}
    for goal in problem.goals:
        panel = found.setdefault(goal.start, Panel(goal.start))
        for e in goal.edges:
            for sub in (graph.before[e], graph.after[e]):
                panel.levels[len(graph.subs[sub].labels)].setdefault(sub)
            if e not in panel.edges:
                panel.edges.append(e)
        panel.goals[graph.after[goal.edges[-1]]].append(goal.name)
    return [found[start] for start in sorted(found)]


def main(name: str) -> str:
    """Return the picture of the problem in the file ``name`` as SVG."""
    given = parse_problem(load_yaml(Path(name).read_text(encoding="utf-8")))
    objective = given.objective or Objective.TUPLES
    model = CostModel(
        given.statistics,
        objective=objective,
        parallelism=given.parallelism,
        partitioning=given.partitioning,
    )
    problem = build_problem(given.queries, model, mir=given.mir)
    plan = optimise(
        given.queries,
        given.statistics,
        Options(
            objective=objective,
            parallelism=given.parallelism,
            partitioning=given.partitioning,
            mir=given.mir,
        ),
    )
    used: set[tuple[object, ...]] = set()
    for order in plan.orders:
        covered = {order.start}
        for step in order.steps:
            before = tuple(sorted(covered))
            covered |= set(step.members)
            used.add((order.start, before, tuple(sorted(covered))))
    drawn = panels(problem)
    rows = [max(len(level) for level in p.levels.values()) for p in drawn]
    body, y = [], MARGIN
    for i in range(0, len(drawn), 2):
        high = 44 + ROW * max(rows[i : i + 2])
        for j, panel in enumerate(drawn[i : i + 2]):
            body += draw(problem.graph, panel, MARGIN + j * PANEL, y, high, used)
        y += high + MARGIN
    width = 2 * PANEL + MARGIN
    about = (
        f"One panel per starting relation; bold edges are those of a plan that costs {plan.cost:g}."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}"'
            f' height="{y}" role="img" aria-labelledby="title desc"'
            " font-family=\"'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif\">",
            '  <title id="title">The graph of states</title>',
            f'  <desc id="desc">{about}</desc>',
            "  <defs>",
            marker("tip", "#9aa5b1", 11),
            marker("tip-used", "#0b7285", 13),
            f"    <style>{STYLE}    </style>",
            "  </defs>",
            f'  <rect width="{width}" height="{y}" rx="16" fill="#fbfaf7"/>',
            *body,
            "</svg>\n",
        ]
    )


def marker(name: str, colour: str, size: int) -> str:
    """Return the SVG definition of an arrow's tip."""
    return (
        f'    <marker id="{name}" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="{size}"'
        f' markerHeight="{size}" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0.8 9.5 5 0 9.2Z" fill="{colour}"/></marker>'
    )


def draw(
    graph: Graph, panel: Panel, x: int, y: int, high: int, used: set[tuple[object, ...]]
) -> list[str]:
    """Return the SVG elements of one panel."""
    lines = [
        f'  <rect class="panel" x="{x}" y="{y}" width="{PANEL - 20}" height="{high}"/>',
        f'  <text class="name" x="{x + 16}" y="{y + 26}">a tuple of {escape(panel.start)}</text>',
    ]
    at: dict[int, tuple[float, float]] = {}
    pitch = (PANEL - 52 - BOX) / max(len(panel.levels) - 1, 1)
    for column, level in enumerate(sorted(panel.levels)):
        subs = list(panel.levels[level])
        # States of a column are spread evenly over the panel's height.
        gap = (high - 40) / len(subs)
        for i, sub in enumerate(subs):
            at[sub] = (x + 16 + column * pitch, y + 40 + gap * (i + 0.5) - HEIGHT / 2)
    for e in panel.edges:
        before, after = graph.before[e], graph.after[e]
        (x1, y1), (x2, y2) = at[before], at[after]
        key = (panel.start, graph.subs[before].labels, graph.subs[after].labels)
        extra = " used" if key in used else ""
        x1, y1, y2 = x1 + BOX, y1 + HEIGHT / 2, y2 + HEIGHT / 2
        lines.append(f'  <path class="edge{extra}" d="M{x1:g} {y1:g}L{x2 - 1:g} {y2:g}"/>')
        store = "⋈".join(graph.subs[graph.target[e]].labels)
        bold = " bold" if extra else ""
        # The label is above a level edge, and beside a sloping one.
        x3, y3 = (x1 + x2) / 2 - 5, (y1 + y2) / 2 + (4 if y1 != y2 else -8)
        lines.append(
            f'  <text class="label{bold}" x="{x3:g}" y="{y3:g}">'
            f"{escape(store)} {graph.cost[e]:g}</text>"
        )
    for sub, (left, top) in at.items():
        goals = panel.goals.get(sub, [])
        kind = "state goal" if goals else "state"
        text = "⋈".join(graph.subs[sub].labels)
        if goals:
            text += f" ({', '.join(goals)})"
        lines.append(
            f'  <rect class="{kind}" x="{left:g}" y="{top:g}" width="{BOX}" height="{HEIGHT}"/>'
        )
        lines.append(
            f'  <text class="t" x="{left + BOX / 2:g}" y="{top + 22:g}">{escape(text)}</text>'
        )
    return lines


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1]))
