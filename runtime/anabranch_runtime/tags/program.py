"""Tag program of a ruleset: the predicates that each of its probes and outputs tests.

A *tag* is a predicate that a query has on one of its labels and that the filter of the label's
relation does not contain: so queries with different filters can read one store. A tuple is sent to
a probe if it passes the tags of a query downstream, and is output for all queries whose tags it
passes. Queries of one probe tree with equal predicates are one *choice*
(:mod:`~anabranch_runtime.tags.choices`).

Only conditions that can't raise an error are tags; others remain residuals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from threading import Lock

import numpy as np

from anabranch_contract.plans.ruleset import OutputRule, ProbeRule, Ruleset
from anabranch_contract.queries.expressions import Column, Expr, columns, is_total, substitute
from anabranch_contract.queries.joins import Label, Stream
from anabranch_runtime.columns.arrays import I32, U64, Ints
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.per_ruleset import KEPT, alike
from anabranch_runtime.tags.choices import ChoiceGroup, Choices, bits_of
from anabranch_runtime.tags.predicates import BaseTables, PredicateIndex
from anabranch_runtime.tags.rule_times import RuleTimes
from anabranch_runtime.tags.trees import CompiledTrees, RuleTree

#: Name, up to the number of the generation, of the column with rows' predicate set numbers.
TAGS = "#tags"
#: Ratio of unused to used predicates of all indexes above which new indexes are begun.
_WASTE = 3
_FEW = 1024
#: Least number of batches between two replacements of indexes for their size; the same for indexes
#: of the greatest size.
SOON, LASTING = 16, 256
#: Growth of the number of predicates with which large indexes are replaced at once: most of their
#: sets are former sets of rows.
GROWTH = 1.1
#: Least and greatest bytes of an index's sets with which it is replaced, since most of its sets are
#: probably of expired rows, or former sets of rows that satisfy newer predicates, too.
FEW_BYTES, MANY_BYTES = 64 << 20, 256 << 20


@dataclass(frozen=True, slots=True)
class RoundChoices:
    """The choices by which a round selects the tuples to send, as tables for
    ``index.choosing.send``.

    Attributes:
        rules, labels, predicates: the kernel's tables; a call gets the rows of its rules, with the
            addresses in ``labels`` filled in.
        indexes: the predicate indexes. ``index_of``: per row of ``labels``, its number.
    """

    rules: Ints
    labels: Ints
    predicates: I32
    indexes: tuple[PredicateIndex, ...]
    index_of: Ints


@dataclass(frozen=True, slots=True)
class TaggedRule:
    """An output rule with tags.

    Attributes:
        tested: the rule without conditions that tags test. ``whole``: with all conditions.
    """

    tested: OutputRule
    whole: OutputRule


@dataclass(frozen=True)
class TaggedOutputs:
    """The output rules of one edge, some with tags.

    Attributes:
        untagged: rules without tags. ``choices``: the predicates of the rules with tags.
        rules: per chosen choice, the output rules.
    """

    untagged: tuple[OutputRule, ...]
    choices: Choices
    rules: tuple[tuple[TaggedRule, ...], ...]

    @cached_property
    def times(self) -> RuleTimes:
        """The time bounds of the rules with tags."""
        return RuleTimes.of([(n, one.tested) for n, some in enumerate(self.rules) for one in some])


@dataclass(frozen=True, slots=True)
class TagProgram:
    """The tags of one ruleset.

    Attributes:
        name: the column with the numbers of rows' sets.
        indexes: stream -> its predicates.
        inputs: outgoing edge of a probe -> choices of the tuples sent to it; absent: all are sent.
        results: the same edge -> choices of the probe's results; absent: all are needed, or all
            satisfy a choice because their inputs do.
        residuals: outgoing edge of a probe -> its residuals that no tag tests; absent: all of them.
        outputs: edge -> its output rules; absent: none has tags.
        derived: cache of the value that another module derives from the program and its ruleset.
    """

    name: str = TAGS
    indexes: Mapping[str, PredicateIndex] = field(default_factory=dict)
    inputs: Mapping[str, Choices] = field(default_factory=dict)
    results: Mapping[str, Choices] = field(default_factory=dict)
    residuals: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    outputs: Mapping[str, TaggedOutputs] = field(default_factory=dict)
    derived: list[tuple[Ruleset, object]] = field(default_factory=list, compare=False)


#: Number of conditions whose compiled forms are cached.
_CACHED = 1 << 16
#: Label and predicate of each tag of a query.
_Predicates = tuple[tuple[Label, int], ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The tags of an output rule, if the residuals ``applied`` are checked upstream.

    Attributes:
        wanted: the query's predicates. ``tagged``: the rule, without and with their conditions.
    """

    output: OutputRule
    applied: tuple[Expr, ...]
    wanted: _Predicates
    tagged: TaggedRule


class _Generation:
    """Predicate indexes, one per stream, for rows' predicate sets; replaced together when full.

    Attributes:
        enough: bytes of an index's sets with which it is full.
        prepared: identity of each output rule of the newest program -> its tags.
        trees: the parts of the newest program.
        batches: number of batches that have used it, per task.
        begun: number of predicates at first.
        bases: stream and its columns -> base tables, also of earlier generations.
    """

    def __init__(self, number: int, enough: int = FEW_BYTES) -> None:
        self.name, self.enough = f"{TAGS}{number}", enough
        self.begun = 0
        self.bases: dict[tuple[str, object], BaseTables] = {}
        self.prepared: Mapping[int, _Prepared] = {}
        self.trees: CompiledTrees[_TreeTags] = CompiledTrees()
        self.batches = 0
        self._lock = Lock()
        self._found: dict[str, PredicateIndex] = {}
        self._columns: dict[str, object] = {}

    @property
    def is_full(self) -> bool:
        """Whether the indexes are to be replaced."""
        with self._lock:
            overflowed = any(index.overflowed for index in self._found.values())
            size = max((index.met.size for index in self._found.values()), default=0)
            if self._count() > GROWTH * self.begun and (overflowed or size >= MANY_BYTES):
                return True
            least = SOON if overflowed or self.enough < MANY_BYTES else LASTING
            return (overflowed or size >= self.enough) and self.batches > least

    def next(self) -> _Generation:
        """Return a new generation in place of this one; it may have more sets if this one has been
        full soon, as stored rows have so many."""
        soon = self.is_full and self.batches <= LASTING
        enough = min(2 * self.enough, MANY_BYTES) if soon else self.enough
        made = _Generation(int(self.name[len(TAGS) :]) + 1, enough)
        made.bases = self.bases
        return made

    def serves(self, streams: Iterable[Stream]) -> bool:
        """Whether a ruleset can use these predicate indexes: columns are equal, and every index
        has space."""
        full = self.is_full
        with self._lock:
            full |= any(index.overflowed for index in self._found.values())
            same = all(self._columns.get(s.name) in (None, s.stored_columns) for s in streams)
            return same and not full

    def wastes(self, used: int) -> bool:
        """Whether too few of the indexes' predicates are in use; ``used``: their number."""
        with self._lock:
            return self._count() > _FEW + _WASTE * used

    def begin(self) -> None:
        """Record the number of predicates with which the generation begins; later calls have no
        effect."""
        with self._lock:
            self.begun = self.begun or self._count()

    def _count(self) -> int:
        return sum(map(len, self._found.values()))

    def of(self, stream: Stream) -> PredicateIndex:
        """Return the predicate index of a stream; it is created if missing."""
        with self._lock:
            if stream.name not in self._found:
                key = stream.name, stream.stored_columns
                bases = self.bases.setdefault(key, BaseTables())
                weighted = stream.is_weighted
                self._found[stream.name] = PredicateIndex(identified=not weighted, bases=bases)
                self._columns[stream.name] = stream.stored_columns
            return self._found[stream.name]


#: List with the newest generation of indexes in this process.
_NEWEST = [_Generation(0)]
#: The last few rulesets, and their newest programs.
_PROGRAMS: list[tuple[Ruleset, TagProgram]] = []
_BEGINNING = Lock()


def _generation(serves: Callable[[_Generation], bool]) -> _Generation:
    """Return the newest generation of indexes, or a new one if ``serves`` rejects it."""
    with _BEGINNING:
        if not serves(_NEWEST[-1]):
            _NEWEST.append(_NEWEST.pop().next())
        return _NEWEST[-1]


def tag_program(ruleset: Ruleset) -> TagProgram:
    """Return the tag program of ``ruleset`` for one batch, with predicates in this process's
    indexes. Full indexes are replaced now and then, which drops predicate sets of expired rows."""
    newest = _NEWEST[-1]
    found = next((program for one, program in _PROGRAMS if alike(one, ruleset)), None)
    if found is not None and found.name == newest.name:
        newest.batches += 1
        found = None if newest.is_full else found
    elif found is not None and newest.serves(ruleset.streams):
        found = None
    if found is None:
        found = _made(ruleset)
        others = [pair for pair in _PROGRAMS if not alike(pair[0], ruleset)]
        same = [pair for pair in others if pair[1].name == found.name]
        # One of other indexes, for a second pipeline in this process; more would fill the memory.
        rest = [pair for pair in others if pair[1].name != found.name]
        _PROGRAMS[:] = [(ruleset, found), *same[: KEPT - 2], *rest[:1]]
        _NEWEST[-1].batches += 1
    return found


def _made(ruleset: Ruleset) -> TagProgram:
    layout = Layout(ruleset, {})
    generation = _generation(lambda one: one.serves(ruleset.streams))
    found = _TagCompiler(layout, generation).tags()
    if generation.wastes(len(found.used)):
        wasteful = generation
        generation = _generation(lambda one: one is not wasteful)
        found = _TagCompiler(layout, generation).tags()
    generation.begin()
    return TagProgram(
        generation.name,
        {stream: generation.of(layout.streams[stream]) for stream, _ in found.used},
        found.inputs,
        found.results,
        found.residuals,
        found.outputs,
    )


@lru_cache(_CACHED)
def _local_to(condition: Expr) -> str | None:
    """Return the label of a residual that can be a tag, as it reads one label only and can't fail;
    None for other residuals. Cached, since successive rulesets have most conditions in common."""
    labels = {column.alias for column in columns(condition)}
    return labels.pop() if len(labels) == 1 and is_total(condition) else None


@lru_cache(_CACHED)
def _predicate(conditions: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the predicate of these conditions on the rows of any label; cached."""
    ordered = sorted(conditions, key=str)
    return tuple(substitute(e, lambda c: Column("", c.name, c.type)) for e in ordered)


@dataclass(slots=True)
class _Tree:
    """The tags of the queries of one probe tree, while they are collected.

    Attributes:
        steps: per probe, its outgoing edge, labels before and after it, and the predicates of the
            queries downstream.
        outputs: per edge, its rules without tags, and the other rules by their predicates.
    """

    steps: list[tuple[str, tuple[Label, ...], tuple[Label, ...], list[_Predicates]]] = field(
        default_factory=list
    )
    outputs: list[tuple[str, list[OutputRule], dict[_Predicates, list[TaggedRule]]]] = field(
        default_factory=list
    )


@dataclass(slots=True)
class _TreeTags:
    """The tags of one probe tree, of the outputs of starting tuples, or of a whole ruleset.

    Attributes:
        used: stream and number of each predicate.
        prepared: identity of each output rule -> its tags.
    """

    inputs: dict[str, Choices] = field(default_factory=dict)
    results: dict[str, Choices] = field(default_factory=dict)
    residuals: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    outputs: dict[str, TaggedOutputs] = field(default_factory=dict)
    used: set[tuple[str, int]] = field(default_factory=set)
    prepared: dict[int, _Prepared] = field(default_factory=dict)

    def add(self, other: _TreeTags) -> None:
        """Add the tags of ``other``, which has other edges and output rules."""
        self.inputs |= other.inputs
        self.results |= other.results
        self.residuals |= other.residuals
        self.outputs |= other.outputs
        self.used |= other.used
        self.prepared |= other.prepared


@dataclass(slots=True)
class _TagCompiler:
    layout: Layout
    generation: _Generation
    #: The tags that are compiled.
    _made: _TreeTags = field(default_factory=_TreeTags)

    def tags(self) -> _TreeTags:
        """Return the tags of the ruleset."""
        trees = self.generation.trees.of(self.layout.ruleset, self._of_tree)
        found = self._made = _TreeTags()
        for edge in self.layout.outputs:
            if edge not in self.layout.rules:
                tree = _Tree()
                self._tag_outputs(edge, (), tree)
                self._finish(tree)
        for tree_tags in trees:
            found.add(tree_tags)
        self.generation.prepared = found.prepared
        return found

    def _of_tree(self, tree: RuleTree) -> _TreeTags:
        made, collected = _TreeTags(), _Tree()
        self._made = made
        root = tree.rules[0]
        self._probe(root, (root.start,), (), collected)
        self._finish(collected)
        return made

    def _probe(
        self,
        rule: ProbeRule,
        labels: tuple[Label, ...],
        applied: tuple[Expr, ...],
        tree: _Tree,
    ) -> list[_Predicates] | None:
        """Return the predicates of each query downstream of ``rule``; None if all its results are
        needed because an intermediate result is stored downstream.

        Args:
            labels: the labels of the tuples that probe.
            applied: residuals checked upstream.
            tree: gets the steps and outputs.
        """
        layout, edge = self.layout, rule.out
        after, applied = (*labels, *rule.members), (*applied, *rule.residuals)
        needed = self._tag_outputs(edge, applied, tree)
        all_wanted = bool(layout.inserts.get(edge))
        for child in layout.probes.get(edge, ()):
            found = self._probe(child, after, applied, tree)
            all_wanted |= found is None
            needed += found or ()
        if all_wanted:
            return None
        if needed:
            tree.steps.append((edge, labels, after, needed))
        # Tags test the other residuals, in this probe's outputs and in later probes.
        left = tuple(e for e in rule.residuals if _local_to(e) is None)
        if len(left) < len(rule.residuals):
            self._made.residuals[edge] = left
        return needed

    def _tag_outputs(self, edge: str, applied: Sequence[Expr], tree: _Tree) -> list[_Predicates]:
        """Add the outputs of ``edge`` to ``tree``; return the predicates of their queries."""
        untagged, needed = list[OutputRule](), list[_Predicates]()
        rules: dict[_Predicates, list[TaggedRule]] = defaultdict(list)
        known, applied = self.generation.prepared, tuple(applied)
        for output in self.layout.outputs.get(edge, ()):
            one = known.get(id(output))
            if one is None or one.output is not output or one.applied != applied:
                one = self._prepared(output, applied)
            self._made.prepared[id(output)] = one
            needed.append(one.wanted)
            if one.wanted:
                rules[one.wanted].append(one.tagged)
            else:
                untagged.append(output)
        for wanted in rules:
            self._made.used.update((self._stream(label), number) for label, number in wanted)
        if rules:
            tree.outputs.append((edge, untagged, rules))
        return needed

    def _prepared(self, output: OutputRule, applied: tuple[Expr, ...]) -> _Prepared:
        whole = replace(output, residuals=tuple(dict.fromkeys((*output.residuals, *applied))))
        found: dict[str, list[Expr]] = defaultdict(list)
        for condition in whole.residuals:
            label = _local_to(condition)
            if label is not None:
                found[label].append(condition)
        wanted = tuple(
            (Label(x), self._index(Label(x)).number(_predicate(tuple(some))))
            for x, some in sorted(found.items())
        )
        left = tuple(e for e in output.residuals if _local_to(e) is None)
        return _Prepared(
            output, applied, wanted, TaggedRule(replace(output, residuals=left), whole)
        )

    def _stream(self, label: Label) -> str:
        return str(self.layout.stream(label))

    def _index(self, label: Label) -> PredicateIndex:
        return self.generation.of(self.layout.streams[self._stream(label)])

    def _finish(self, tree: _Tree) -> None:
        """Set the choices of the probes and outputs of a complete probe tree."""
        every = {wanted for _, _, rules in tree.outputs for wanted in rules}
        if not every:
            return
        labels = tuple(sorted({label for wanted in every for label, _ in wanted}))
        rows = {wanted: tuple(dict(wanted).get(x, -1) for x in labels) for wanted in every}
        ordered = sorted(every, key=rows.__getitem__)
        numbers = {wanted: n for n, wanted in enumerate(ordered)}
        predicates = np.array([rows[wanted] for wanted in ordered], np.int32)
        group = ChoiceGroup(
            labels,
            predicates,
            tuple(
                self._index(label).translated(np.ascontiguousarray(predicates[:, j]))
                for j, label in enumerate(labels)
            ),
        )

        derived: dict[frozenset[int], tuple[Ints, U64, list[bool]]] = {}

        def choices(some: Iterable[_Predicates], tested: Container[Label]) -> Choices:
            key = frozenset(map(numbers.__getitem__, some))
            known = derived.get(key)
            if known is None:
                chosen = np.array(sorted(key), np.int64)
                mask = bits_of(chosen, (len(ordered) + 63) // 64)
                any_of: list[bool] = np.any(predicates[chosen] >= 0, axis=0).tolist()
                known = derived[key] = chosen, mask, any_of
            chosen, mask, used = known
            kept = tuple(x for x, u in zip(labels, used, strict=True) if u and x in tested)
            return Choices(group, chosen, mask, kept)

        made = self._made
        for edge, before, after, found in tree.steps:
            for into, tested in ((made.inputs, before), (made.results, after)):
                if all(any(label in tested for label, _ in wanted) for wanted in found):
                    into[edge] = choices(found, tested)
            if edge in made.results and set(made.results[edge].labels) <= set(before):
                del made.results[edge]
        for edge, untagged, tagged in tree.outputs:
            one = choices(tagged, labels)
            by_choice = sorted(tagged, key=numbers.__getitem__)
            made.outputs[edge] = TaggedOutputs(
                tuple(untagged), one, tuple(tuple(tagged[wanted]) for wanted in by_choice)
            )
