"""Probes whose result would be too large, piece by piece.

How many matches a tuple has is known once they have been found. So a probe is tried with what
there is; where it stops because it finds too much, with half of that, and so on, and the size that
went well is kept for what comes next on the same edge. What has been found in vain costs no more
than what is found in the end; where fan-out is moderate nothing is tried twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from anabranch_contract.plans.ruleset import ProbeRule
from anabranch_runtime.index.matching import TooManyPairs
from anabranch_runtime.probe.probe import Prober
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.storage.partial import Partial


@dataclass(slots=True)
class Pieces:
    """Probes that make at most ``prober.most`` tuples at a time."""

    prober: Prober
    #: Edge, or step of one -> tuples to send at once, where all that there are were too many.
    _sizes: dict[str, int] = field(default_factory=dict)

    def probe(self, partial: Partial, rule: ProbeRule, access: Access) -> Iterator[Partial]:
        """The partial result on ``rule.out``, in pieces, which are made lazily."""
        return self._each(rule.out, partial, lambda piece: self.prober.probe(piece, rule, access))

    def fill(self, partial: Partial, rule: ProbeRule, access: Access, at: int) -> Iterator[Partial]:
        """What the ``at``-th step of what replaces an MIR makes, in pieces likewise."""

        def step(piece: Partial) -> Partial | None:
            return self.prober.fill(piece, rule, access, at)

        return self._each(f"{rule.out}:{at}", partial, step)

    def _each(
        self, name: str, partial: Partial, probe: Callable[[Partial], Partial | None]
    ) -> Iterator[Partial]:
        done = 0
        while done < partial.length:
            piece = partial.cut(done, done + self._sizes.get(name, partial.length))
            try:
                found = probe(piece)
            except TooManyPairs:
                self._sizes[name] = max(piece.length // 2, 1)
                continue
            done += piece.length
            made = 0 if found is None else found.length
            if piece.length == self._sizes.get(name) and 4 * made < self.prober.most:
                self._sizes[name] *= 2
            if found is not None:
                yield found
