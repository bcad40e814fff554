"""The probe rules of a ruleset that are executed in rounds, as tables for a kernel.

A rule belongs to the program if its probe is direct (``direct``), only keys, arrival and time
bounds decide its matches, it runs at level 0, and it has neither substreams nor look-ahead filters.
Its tuples must be arrivals or come from a rule of the program. The program is the part of rounds
that is constant over batches, so it is computed once per ruleset. A ruleset with few rules has an
empty program: rounds would cost more than they save.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import ProbeRule, Ruleset, arrival_edge
from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.probe.direct import DirectStep, step_of
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey

#: Minimum number of a ruleset's probe rules for probing in rounds.
FEWEST = 1_000


@dataclass(frozen=True, slots=True)
class ProbeProgram:
    """The rules of a program; a rule's number is its index in ``rules``.

    Attributes:
        rules: the rules. ``labels``: per rule, the labels of its results, the start first.
        table, bounds: arguments of ``index.rounds.match_round``.
        questions: distinct lookups (relation, store, index), which rules may share: one rule of
            each, the index, and the index's name.
        names: columns read from tuples: sigmas, event times, keys.
        read: stream -> indexes in ``names`` of the columns read from its tuples.
        roots: starting label -> edge -> number of the rule that its arrivals take.
        children, child_ends: numbers of the next rules, concatenated; per rule, their end.
        others: per rule, the next rules outside the program.
        delivers: per rule, whether its results go to stores, outputs or rules in ``others``.
    """

    rules: tuple[ProbeRule, ...]
    labels: tuple[tuple[Label, ...], ...]
    table: Ints
    bounds: Ints
    questions: tuple[tuple[ProbeRule, IndexKey, str], ...]
    names: tuple[str, ...]
    read: Mapping[str, tuple[int, ...]]
    roots: Mapping[Label, dict[str, int]]
    children: Ints
    child_ends: Ints
    others: tuple[tuple[ProbeRule, ...], ...]
    delivers: NDArray[np.bool_]


@per_ruleset
def program(ruleset: Ruleset) -> ProbeProgram:
    """The program of ``ruleset``."""
    layout = Layout(ruleset, {})
    steps: list[DirectStep] = []
    rules: list[ProbeRule] = []
    labels: list[tuple[Label, ...]] = []
    roots: dict[Label, dict[str, int]] = defaultdict(dict)
    children: list[list[int]] = []
    others: list[tuple[ProbeRule, ...]] = []

    def add(rule: ProbeRule, before: tuple[Label, ...]) -> bool:
        step = step_of(layout, rule)
        apart = rule.level or rule.residuals or rule.substreams or rule.ahead
        if step is None or apart or not _plain(layout, step):
            return False
        steps.append(step)
        rules.append(rule)
        labels.append((*before, step.found))
        return True

    many = len(ruleset.probe_rules) >= FEWEST
    for label in [label for starts in layout.starts.values() for label in starts] if many else ():
        for rule in layout.probes.get(arrival_edge(layout.relation_of[label]), ()):
            if rule.start == label and add(rule, (label,)):
                roots[label][rule.out] = len(rules) - 1
    at = 0
    while at < len(rules):
        own, left = list[int](), list["ProbeRule"]()
        for child in layout.probes.get(rules[at].out, ()):
            if add(child, labels[at]):
                own.append(len(rules) - 1)
            else:
                left.append(child)
        children.append(own)
        others.append(tuple(left))
        at += 1
    return _compiled(layout, rules, steps, labels, roots, children, others)


def _plain(layout: Layout, step: DirectStep) -> bool:
    """Whether the declared type of the key column is one that is hashed unchanged."""
    declared = dict(layout.streams[layout.stream(step.label)].columns)
    return step.column in declared and arrow_type(declared[step.column]) in step.columns


def _compiled(
    layout: Layout,
    rules: list[ProbeRule],
    steps: list[DirectStep],
    labels: list[tuple[Label, ...]],
    roots: Mapping[Label, dict[str, int]],
    children: list[list[int]],
    others: list[tuple[ProbeRule, ...]],
) -> ProbeProgram:
    names = {SIGMA: 0, TAU: 1}
    read: dict[str, set[int]] = defaultdict(set)
    questions: dict[tuple[str, str, IndexKey], int] = {}
    asked: list[tuple[ProbeRule, IndexKey, str]] = []
    lines, bounds = [], list[tuple[int, int, int]]()
    for rule, step, members in zip(rules, steps, labels, strict=True):
        question = (rule.mir, rule.store, step.index)
        if question not in questions:
            questions[question] = len(asked)
            asked.append((rule, step.index, step.index.name))
        column = names.setdefault(step.column, len(names))
        read[layout.stream(step.label)].add(column)
        read[layout.stream(rule.start)].add(names[SIGMA])
        first = len(bounds)
        for partner, micros, later in step.bounds:
            bounds.append((members.index(partner), micros, later))
            read[layout.stream(partner)].add(names[TAU])
        less = 0 if step.inclusive else 1
        keyed = members.index(step.label)
        lines.append((keyed, column, less, first, len(bounds), questions[question]))
    wanted = (layout.inserts, layout.outputs)
    return ProbeProgram(
        tuple(rules),
        tuple(labels),
        np.array(lines, np.int64).reshape(-1, 6),
        np.array(bounds, np.int64).reshape(-1, 3),
        tuple(asked),
        tuple(names),
        {stream: tuple(sorted(columns)) for stream, columns in read.items()},
        roots,
        np.array([c for own in children for c in own], np.int64),
        np.cumsum([0, *map(len, children)]),
        tuple(others),
        np.array(
            [
                bool(left) or any(rule.out in there for there in wanted)
                for rule, left in zip(rules, others, strict=True)
            ],
            np.bool_,
        ),
    )
