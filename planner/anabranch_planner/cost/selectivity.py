"""The selectivity of a canonical sub-join: an estimate, corrected by measured matches.

**Estimate.** Relations are linked into a maximum spanning tree. Pairs that share most key classes
come first (so that a composite key counts as one key, not as independent parts), then stated
selectivities before derived ones, then greater (weaker) selectivities before smaller ones. By the
last rule a class of k attributes divides by all distinct counts but the smallest (containment of
value sets). Where frequent values are measured, a class is estimated from them instead
(:mod:`~anabranch_planner.cost.values`), since a value frequent in two relations need not be so in a
third. Each class is spanned once, so equalities implied by others are not counted twice, and a
cycle of classes counts every class.

**Correction.** The estimate treats predicates as independent. Correlated data make it wrong, by one
more factor with each step. For each running step the runtime counts the pairs of a partial result
over ``H`` and a stored tuple of ``T`` that its probes represent, and the matches among them
(``contract.protocol.measurements.JoinSample``). So ``hits / pairs`` is the step's selectivity,
whatever rates and windows are. For a sub-join ``X`` that this step produces,

    f(X) = f(H) * f(T) * (hits + A) / (pairs + A / p),    p = estimate(X) / (f(H) * f(T)),

the mean of a Gamma prior around the step's estimated selectivity, with the weight of ``A`` =
:data:`PRIOR_HITS` matches. Few pairs leave the estimate nearly unchanged, many replace it, and no
match at all never gives zero. A tuple with a hundred matches adds little more information than a
tuple with one, so ``hits`` and ``pairs`` are scaled down to at most one hit per probe. Steps
with fewer than :data:`MIN_PROBES` probes are ignored. Where several steps produce ``X``, their
results are averaged, weighted by their probes.

**Substreams.** Some counts cover only some substreams of a start. By the shares of values
(:mod:`~anabranch_planner.cost.values`) these substreams send a fraction ``h`` of the start's tuples
over ``H``, and a fraction ``x`` of those over ``X``. So their selectivity is ``x / h`` times that
of all tuples, and their ``pairs`` are multiplied by ``x / h``. Shares are estimates, so these
probes have the weight :data:`PART_WEIGHT`.

**Larger sub-joins** inherit corrections: ``estimate(X)`` is multiplied by ``f(Y) / tree(Y)`` for
measured sub-joins ``Y`` of ``X``, the largest ``Y`` first (then by id). ``Y`` is used only if its
members lie in different groups; its use merges these groups. So no predicate is corrected twice:
any two used sub-joins have at most one relation in common, and they form no cycle.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.plans.steps import function_digest
from anabranch_contract.protocol.measurements import JoinSample
from anabranch_contract.queries.joins import AttrRef, Label
from anabranch_contract.queries.mirs import Mir, MirId, canonical
from anabranch_planner.cost.figures import Figures, Keys, sane
from anabranch_planner.cost.values import Column, SubstreamShares

#: Minimum number of probes of a step before its counts correct the estimate.
MIN_PROBES = 30
#: Weight of the estimate, in matches, against measured matches.
PRIOR_HITS = 10.0
#: Weight of a probe counted for some substreams only, against 1 for one counted for all tuples.
PART_WEIGHT = 0.1


class PartNames:
    """Cache of the sub-joins within larger sub-joins."""

    def __init__(self) -> None:
        self._known: dict[tuple[MirId, frozenset[Label]], Mir] = {}

    def of(self, mir: Mir, labels: frozenset[Label]) -> Mir:
        """The canonical sub-join of ``mir`` over ``labels``, a subset of its members."""
        found = self._known.get((mir.id, labels))
        if found is None:
            relation_of = dict(zip(mir.members, mir.relations, strict=True))
            found = canonical(mir.classes, relation_of, labels)
            self._known[mir.id, labels] = found
        return found


class Selectivities:
    """Selectivities of canonical sub-joins; memoised.

    Args:
        counted: the split into substreams in which the samples were counted; others are ignored.
    """

    def __init__(
        self,
        figures: Figures,
        samples: Sequence[JoinSample],
        parts: PartNames | None = None,
        counted: Sequence[Substreams] = (),
    ) -> None:
        self._figures = figures
        self._counted = {
            function_digest(one): SubstreamShares(figures.values, (one,)) for one in counted
        }
        self._names = PartNames() if parts is None else parts
        self._factors: dict[MirId, tuple[float, ...]] = {}
        self._ratios: dict[MirId, float] = {}
        self._seen: dict[MirId, list[JoinSample]] = defaultdict(list)
        usable = [s for s in samples if _checked(s).probes >= MIN_PROBES and self._is_usable(s)]
        for sample in sorted(usable, key=lambda s: s.step):
            self._seen[sample.joined].append(sample)
        self._members = {
            joined: frozenset(found[0].head + found[0].target)
            for joined, found in self._seen.items()
        }
        self._by_first: dict[Label, list[MirId]] = defaultdict(list)
        for joined, members in self._members.items():
            self._by_first[min(members)].append(joined)

    def factors(self, mir: Mir) -> tuple[float, ...]:
        """Factors whose product is the selectivity of the sub-join ``mir``."""
        found = self._factors.get(mir.id)
        if found is None:
            found = self._tree(mir)
            if self._seen:
                found = self._corrected(mir, found)
            self._factors[mir.id] = found
        return found

    def of(self, mir: Mir) -> float:
        """Selectivity of ``mir``: the fraction of the members' cross product with equal keys."""
        return math.prod(self.factors(mir))

    def _tree(self, mir: Mir) -> tuple[float, ...]:
        """Selectivity factors of a sub-join by a spanning tree, without measured corrections."""
        if len(mir.members) == 1:
            return ()
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        attribute: list[dict[Label, AttrRef]] = []
        for key_class in mir.classes:
            firsts: dict[Label, AttrRef] = {}
            for member in key_class.members:
                firsts.setdefault(member.label, member)
            attribute.append(firsts)
        if len(mir.members) == 2:
            left, right = mir.members
            keys = tuple((firsts[left], firsts[right]) for firsts in attribute)
            return (self._figures.selectivity(keys, relation_of)[1],)

        shared: dict[tuple[Label, Label], list[int]] = defaultdict(list)
        for number, firsts in enumerate(attribute):
            for pair in combinations(sorted(firsts), 2):
                shared[pair].append(number)
        group = [{label: label for label in firsts} for firsts in attribute]
        links: list[_Link] = []

        def offer(pair: tuple[Label, Label], classes: Sequence[int]) -> None:
            keys: Keys = tuple((attribute[i][pair[0]], attribute[i][pair[1]]) for i in classes)
            stated, value = self._figures.selectivity(keys, relation_of)
            heapq.heappush(links, (-len(classes), not stated, -value, pair, tuple(classes)))

        for shared_pair, numbers in shared.items():
            offer(shared_pair, numbers)
        found = []
        alone: dict[int, list[float]] = defaultdict(list)
        # Connecting key classes only worsens a link's sort key, so a link whose key has not changed
        # is the best one.
        while links:
            _, derived, value, pair, classes = heapq.heappop(links)
            still = tuple(i for i in classes if group[i][pair[0]] != group[i][pair[1]])
            if still != classes:
                if still:
                    offer(pair, still)
                continue
            found.append(-value)
            if derived and len(classes) == 1:
                alone[classes[0]].append(-value)
            for i in classes:
                old, new = group[i][pair[0]], group[i][pair[1]]
                group[i] = {label: new if g == old else g for label, g in group[i].items()}
        for i, by_pairs in sorted(alone.items()):
            columns = [(relation_of[ref.label], ref.attribute) for ref in attribute[i].values()]
            if len(columns) > 2 and len(by_pairs) == len(columns) - 1:
                found += self._by_values(columns, math.prod(by_pairs))
        return tuple(found)

    def _by_values(self, columns: Sequence[Column], by_pairs: float) -> list[float]:
        """Factor by which frequent values correct ``by_pairs``, the product of pairwise
        selectivities of three or more equated columns; an empty list if the values are unknown."""
        values = self._figures.values
        if by_pairs <= 0 or not all(map(values.are_known, columns)):
            return []
        return [values.selectivity(columns) / by_pairs]

    def _corrected(self, mir: Mir, tree: tuple[float, ...]) -> tuple[float, ...]:
        """Selectivity factors of a sub-join, corrected by measured matches."""
        plain = math.prod(tree)
        corrections = [self._ratio(part) for part in self._parts(mir)]
        estimate = (*tree, *(c for c in corrections if c != 1.0))
        seen = self._seen.get(mir.id)
        if not seen:
            return estimate
        value = self._observed(mir, math.prod(estimate), seen)
        self._ratios[mir.id] = value / plain if plain > 0 else 1.0
        return (value,)

    def _ratio(self, part: Mir) -> float:
        """Corrected over uncorrected selectivity of the measured sub-join ``part``."""
        self.factors(part)
        return self._ratios[part.id]

    def _parts(self, mir: Mir) -> list[Mir]:
        """The measured sub-joins of ``mir`` that correct its estimate."""
        inside = frozenset(mir.members)
        candidates = [
            joined
            for label in mir.members
            for joined in self._by_first.get(label, ())
            if self._members[joined] < inside
        ]
        group = {label: label for label in mir.members}
        chosen = []
        for joined in sorted(candidates, key=lambda j: (-len(self._members[j]), j)):
            groups = {group[label] for label in self._members[joined]}
            if len(groups) < len(self._members[joined]):
                continue
            part = self._names.of(mir, self._members[joined])
            if part.id != joined:
                continue
            chosen.append(part)
            name = min(groups)
            group = {label: name if g in groups else g for label, g in group.items()}
        return chosen

    def _is_usable(self, sample: JoinSample) -> bool:
        """Whether a join sample counts any pairs, over known substreams."""
        known = not sample.part.substreams or sample.part.function in self._counted
        return sample.pairs > 0 and known

    def _observed(self, mir: Mir, estimate: float, seen: Sequence[JoinSample]) -> float:
        """Selectivity of a sub-join from the samples of steps that produce it."""
        total = weight = 0.0
        for sample in seen:
            head, target = (
                self._names.of(mir, frozenset(labels)) for labels in (sample.head, sample.target)
            )
            before = self.of(head) * self.of(target)
            of_all, counts = self._of_all(sample, head, mir), sample.probes
            if of_all is None:
                continue
            if sample.part.substreams:
                counts *= PART_WEIGHT
            total += counts * before * _posterior(of_all, before, estimate)
            weight += counts
        return total / weight if weight else estimate

    def _of_all(self, sample: JoinSample, head: Mir, mir: Mir) -> JoinSample | None:
        """``sample`` of some substreams, scaled up to all tuples; None if these match nothing."""
        part = sample.part
        if not part.substreams:
            return sample
        shares = self._counted[part.function]
        sent, made = (
            sum(shares.of(one, part.start, number) for number in part.substreams)
            for one in (head, mir)
        )
        if sent <= 0 or made <= 0:
            return None
        return replace(sample, pairs=sample.pairs * made / sent)


#: Candidate edge of the spanning tree: sort key (best first), and key classes to connect.
_Link = tuple[int, bool, float, tuple["Label", "Label"], tuple[int, ...]]


def _posterior(sample: JoinSample, before: float, estimate: float) -> float:
    """Selectivity of a step from its sample, with the estimate as a prior."""
    scale = min(1.0, sample.probes / sample.hits) if sample.hits > 0 else 1.0
    hits, pairs = sample.hits * scale, sample.pairs * scale
    if before <= 0 or estimate <= 0:
        return min(hits / pairs, 1.0)
    return min((hits + PRIOR_HITS) / (pairs + PRIOR_HITS * before / estimate), 1.0)


def _checked(sample: JoinSample) -> JoinSample:
    """Reject impossible counts of a join sample."""
    for name, value in (("probes", sample.probes), ("pairs", sample.pairs), ("hits", sample.hits)):
        sane(value, f"number of {name} seen on the way to {sample.joined}")
    return sample
