"""Probes with too large results, split into pieces of their tuples.

The number of matches is known only after the lookup. So a probe is tried with all its tuples. If it
stops because of too many matches, it is retried with half of them, and so on. The next probe on the
same edge begins with the size that succeeded. A failed trial costs no more than a successful one.
If tuples have few matches each, no trial fails.
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
    """Runs probes in pieces of their tuples, each with at most ``prober.most`` result tuples."""

    prober: Prober
    #: Edge (or ``edge:fill step``) -> tuples per piece, for edges with a probe that was too large.
    _sizes: dict[str, int] = field(default_factory=dict)

    def probe(self, partial: Partial, rule: ProbeRule, access: Access) -> Iterator[Partial]:
        """Yield the partial results on ``rule.out``, one per piece, computed when requested."""
        return self._each(rule.out, partial, lambda piece: self.prober.probe(piece, rule, access))

    def fill(self, partial: Partial, rule: ProbeRule, access: Access, at: int) -> Iterator[Partial]:
        """Yield the results of the ``at``-th fill step in an MIR's gaps by piece, as requested."""

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
