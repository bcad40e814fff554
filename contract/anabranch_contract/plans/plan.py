"""The plan, which every optimiser returns: probe orders, stores, and their cost.

All optimisers return this one type, so that any two can be compared on the same input.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import AttrRef, Label, QueryId
from anabranch_contract.queries.mirs import Mir, MirId


class Optimizer(StrEnum):
    """The optimisers of plans, behind one signature (``plans.optimise``)."""

    CLASH = "clash"
    SHARED = "shared"
    INDIVIDUAL = "individual"
    DPPICK = "dppick"


class Objective(StrEnum):
    """The unit of costs: ``SECONDS``: CPU time of probes, inserts and merges; ``TUPLES``: number of
    tuples sent and rows written; ``PAPER``: number of tuples sent."""

    SECONDS = "seconds"
    TUPLES = "tuples"
    PAPER = "paper"


class Formulation(StrEnum):
    """The integer programs: ``TIGHT``, the default, and ``PAPER``, as in the CLASH paper."""

    TIGHT = "tight"
    PAPER = "paper"


class Solver(StrEnum):
    """The solvers of integer programs, by name.

    ``BRANCH`` is anabranch's own branch and bound over linear relaxations solved by HiGHS; the
    others are solvers of whole integer programs.
    """

    BRANCH = "branch"
    HIGHS = "highs"
    CP_SAT = "cp-sat"
    MATHOPT = "mathopt"
    CBC = "cbc"


class LookingAhead(StrEnum):
    """Whether probes get look-ahead filters, tests for matches in later probes."""

    AUTO = "auto"
    NEVER = "never"


class HotKeyDealing(StrEnum):
    """Whether new rows of frequent values are spread over several hosts (``StoreSpec.hot``)."""

    AUTO = "auto"
    NEVER = "never"


#: Expected lifetime of a new intermediate result, as a multiple of the history's length.
BACKFILL_HORIZON = 1.0


class Backfilling(StrEnum):
    """Policy for backfills: decided by the cost model, or fixed by the user for all."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Approval(StrEnum):
    """Whether a plan that changes the running one is published at once or waits for approval."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Step:
    """One probe of a probe order.

    Attributes:
        target: the relation or intermediate result (MIR) whose store is probed.
        members: the labels that the step adds to the partial result. For an MIR these are its own
            labels; for a base relation, its label in the goal (query or MIR).
        partition: the partition attribute of the probed copy, in the *store's*
            namespace (``Mir.members``); None if the copy is not partitioned by a key.
        broadcast: whether all partitions are probed, because the probing tuple has no value for
            ``partition``.
        cost: the step's cost under the plan's cost model, for explanations.
        cardinality: estimated number of tuples per unit of time after the step.
    """

    target: MirId
    members: tuple[Label, ...]
    partition: AttrRef | None
    broadcast: bool
    cost: float
    cardinality: float


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """The probes of a tuple that arrives for the label ``start``, in order, up to one goal.

    ``goal`` is the id of a query, or (``maintains``) of an MIR, an intermediate result to maintain.
    ``owner`` is empty for shared orders; without sharing it is the query that the order serves.
    ``substream`` is the number of the substream whose tuples take the order (``Plan.substreams``).
    """

    goal: str
    maintains: bool
    start: Label
    steps: tuple[Step, ...]
    owner: str = ""
    substream: int = 0

    @property
    def rank(self) -> tuple[str, bool, str, Label, int]:
        """Sort key of the probe orders in a plan."""
        return self.owner, self.maintains, self.goal, self.start, self.substream


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A copy of a store, hash-partitioned by the attribute ``partition`` (None: not by a key)."""

    mir: MirId
    partition: AttrRef | None
    owner: str = ""
    insert_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan: the probe orders and store copies that an optimiser has chosen.

    Attributes:
        mirs: every store that an order probes or maintains, base relations included.
        copies: the store copies to keep; every relation of every query has at least one.
        cost: the plan's cost per unit of time. ``switching``: penalty for changing to this plan
            from the running plan, if charged.
        bound: proven lower bound of ``cost + switching``. ``gap``: relative distance to the bound.
        method: the method that found the plan, e.g. ``"highs"``, ``"greedy"``.
        candidates, variables, constraints: the size of the integer program that was solved.
        substreams: the splits of arriving tuples. Each goal has one order per substream of a split
            label; the orders of all other labels have substream 0.
    """

    optimizer: Optimizer
    objective: Objective
    queries: tuple[QueryId, ...]
    orders: tuple[ProbeOrder, ...]
    mirs: tuple[Mir, ...]
    copies: tuple[StoreCopy, ...]
    cost: float
    bound: float
    gap: float
    method: str
    candidates: int = 0
    variables: int = 0
    constraints: int = 0
    switching: float = 0.0
    substreams: tuple[Substreams, ...] = ()
