"""Tests of the overload controller against a simulated machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from anabranch_runtime.rations.overload import GRAIN, RISE, BatchWork, LoadState, observe


@dataclass
class Machine:
    """Simulated pipeline with a queue before it.

    Attributes:
        fixed: seconds of a batch. ``per_row``: seconds for reading and storing a row.
        probing: seconds of probing a row takes with all rations 1. ``rationable``: what rations can
            save of it.
        latency: seconds that are promised.
    """

    fixed: float = 0.2
    per_row: float = 2e-5
    probing: float = 2e-5
    rationable: float = 1.0
    latency: float = 2.0
    noise: float = 0.0
    load: LoadState = field(default_factory=LoadState)
    waiting: float = 0.0
    clock: float = 0.0
    oldest: float = 0.0
    latencies: list[float] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)
    rng: Random = field(default_factory=lambda: Random(5))

    def batch(self, rate: float) -> None:
        """Run a batch of all waiting rows, within a batch's maximum length, while more
        rows arrive.
        """
        budget = self.load.budget
        probing = self.probing * (1 - self.rationable + self.rationable * budget)
        most = (self.latency / 2 - self.fixed) / (self.per_row + probing)
        rows = min(self.waiting, max(most, 100.0))
        factor = 1 + self.rng.uniform(-self.noise, self.noise)
        seconds = (self.fixed + rows * (self.per_row + probing)) * factor
        waited = self.waiting / rate if rate else 0.0
        self.waiting += rate * seconds - rows
        self.clock += seconds
        self.latencies.append(waited + seconds)
        self.budgets.append(budget)
        work = BatchWork(
            rows=round(rows),
            seconds=seconds,
            probing=rows * probing * factor,
            budget=budget,
            rationable=self.rationable,
            elapsed=seconds,
            waiting=round(self.waiting),
            waited=self.waiting / rate if rate else 0.0,
        )
        self.load = observe(self.load, work, self.latency)

    @property
    def capacity(self) -> float:
        """Rows per second that batches of the allowed length process with all rations 1."""
        length = self.latency / 2
        return (length - self.fixed) / (self.per_row + self.probing) / length


@pytest.mark.parametrize("noise", [0.0, 0.15])
@pytest.mark.parametrize(("times", "rationable"), [(1.2, 0.7), (1.3, 0.8), (1.5, 1.0), (1.8, 1.0)])
def test_under_overload_latency_stays_near_what_is_promised(
    times: float, rationable: float, noise: float
) -> None:
    machine = Machine(per_row=1e-5, probing=3e-5, rationable=rationable, noise=noise)
    assert _least_budget(machine, times * machine.capacity) > 0.1
    for _ in range(20):
        machine.batch(0.6 * machine.capacity)
    assert machine.budgets[-1] == 1.0
    for _ in range(80):
        machine.batch(times * machine.capacity)
    assert machine.load.overloaded
    late = sorted(machine.latencies[40:])
    assert late[len(late) // 2] <= machine.latency
    assert late[-2] <= 1.2 * machine.latency
    # No more is withheld than needed: probing takes most of the time.
    assert machine.waiting < machine.latency * times * machine.capacity
    spent = sum(machine.budgets[-20:]) / 20
    wanted = _least_budget(machine, times * machine.capacity)
    assert wanted - 0.25 <= spent <= wanted + 0.1


def _least_budget(machine: Machine, rate: float) -> float:
    """Return the budget at which batches of the allowed length just keep up, without headroom."""
    length = machine.latency / 2
    room = (length - machine.fixed) / (length * rate) - machine.per_row
    return (room / machine.probing - (1 - machine.rationable)) / machine.rationable


def test_overload_ends_when_the_input_does() -> None:
    machine = Machine()
    for _ in range(40):
        machine.batch(1.5 * machine.capacity)
    assert machine.load.overloaded
    for _ in range(40):
        machine.batch(0.5 * machine.capacity)
    assert not machine.load.overloaded
    assert machine.load.budget == 1.0
    # The budget has risen step by step.
    assert all(b - a <= RISE + 1e-9 for a, b in pairwise(machine.budgets[40:]))


def test_a_machine_that_keeps_up_is_left_alone() -> None:
    machine = Machine(noise=0.2)
    for _ in range(100):
        machine.batch(0.7 * machine.capacity)
    assert set(machine.budgets) == {1.0}


def test_where_storing_alone_is_too_much_nothing_is_probed() -> None:
    machine = Machine()
    for _ in range(60):
        machine.batch(2 / machine.per_row)
    assert machine.load.budget == 0.0
    assert machine.load.needed > 2


def test_budgets_stay_on_a_grid() -> None:
    machine = Machine(noise=0.1)
    for _ in range(60):
        machine.batch(1.4 * machine.capacity)
    assert all(b / GRAIN == round(b / GRAIN) for b in machine.budgets)


def test_batches_without_rows_say_nothing() -> None:
    load = observe(LoadState(), BatchWork(0, 0.01, 0.0, 1.0, 1.0, 1.0), 2.0)
    assert (load.budget, load.overloaded) == (1.0, False)


def test_a_controller_that_starts_anew_does_not_take_a_backlog_for_arrivals() -> None:
    """Rows that waited during an interruption did not arrive during the first batch."""
    for rate in (1.3, 1.6):
        machine = Machine()
        for _ in range(40):
            machine.batch(rate * machine.capacity)
        before = machine.load
        assert before.overloaded
        known = LoadState(before.budget, overloaded=True, waiting=None, savable=before.savable)
        machine.load = known
        budgets = []
        for _ in range(10):
            machine.batch(rate * machine.capacity)
            budgets.append(machine.load.budget)
        assert min(budgets) >= before.budget - 0.2
        assert machine.load.overloaded


def test_a_sudden_load_whose_probes_get_dearer_is_met_before_input_waits() -> None:
    machine = Machine(fixed=0.1, per_row=3e-6, probing=1e-5)
    for _ in range(30):
        machine.batch(15_000)
    begun, machine.latencies = machine.clock, []
    while machine.clock < begun + 20:
        # Windows fill for ten seconds.
        machine.probing = 1e-5 + 3e-5 * min((machine.clock - begun) / 10, 1.0)
        machine.batch(60_000)
    assert max(machine.latencies) <= 1.2 * machine.latency
    assert machine.load.budget == pytest.approx(0.62 / 2.4, abs=1 / 16)
