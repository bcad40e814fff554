"""Time bounds of many output rules, tested together for the tuples of their choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch_contract.plans.ruleset import OutputRule
from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.index.choosing import timely
from anabranch_runtime.storage.partial import Partial


@dataclass(frozen=True, slots=True)
class RuleTimes:
    """Output rules of one edge, with their time bounds as tables for ``index.choosing.timely``.

    Attributes:
        rules: the rules. ``choices``: per rule, its choice.
        labels: the labels with bounds.
        bounds, ends: the kernel's tables.
    """

    rules: tuple[OutputRule, ...]
    choices: Ints
    labels: tuple[Label, ...]
    bounds: Ints
    ends: Ints

    @staticmethod
    def of(rules: Sequence[tuple[int, OutputRule]]) -> RuleTimes:
        """Return the tables for output rules, each given with its choice."""
        bounds = [bound for _, rule in rules for bound in rule.bounds]
        labels = dict.fromkeys(x for bound in bounds for x in (bound.later, bound.earlier))
        numbers = {label: n for n, label in enumerate(labels)}
        table = [(numbers[b.later], numbers[b.earlier], b.micros) for b in bounds]
        return RuleTimes(
            tuple(rule for _, rule in rules),
            np.array([choice for choice, _ in rules], np.int64),
            tuple(labels),
            np.array(table, np.int64).reshape(-1, 3),
            np.cumsum([0, *(len(rule.bounds) for _, rule in rules)]),
        )

    def counts(self, tuples: Partial, positions: I32, ends: Ints) -> Ints:
        """Return, per output rule, the number of its choice's tuples within the rule's time bounds.

        Args:
            positions, ends: positions in ``tuples`` by choice, and the end of each choice's part.
        """
        if not len(positions):
            return np.zeros(len(self.rules), np.int64)
        taus = np.empty((len(self.labels), tuples.length), np.int64)
        for label, row in zip(self.labels, taus, strict=True):
            row[:] = tuples.tau(label)
        begins = np.concatenate([[0], ends])[self.choices]
        parts = np.stack([begins, ends[self.choices]], axis=1)
        found: Ints = timely(positions, parts, self.bounds, self.ends, taus)
        return found
