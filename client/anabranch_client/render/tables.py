"""Answers and reports as tables for the terminal; layout only."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from anabranch_client.render.views import view_facts
from anabranch_client.times import moment, took

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.epochs import (
        CurrentEpoch,
        EpochOut,
        EpochSummary,
        SavingOut,
    )
    from anabranch_contract.rest.planning.plans import CostsRecord
    from anabranch_contract.rest.planning.revisions import RevisionList, RevisionRecord
    from anabranch_contract.rest.planning.settings import SettingsOut
    from anabranch_contract.rest.queries import (
        MissedOut,
        ProblemRecord,
        QueryOut,
        ReplacementOut,
        RunOut,
    )
    from anabranch_contract.rest.slo import Slo

#: Width of tables outside a terminal, and minimum width assumed for a terminal, in characters.
_UNBOUNDED, _LEAST_COLUMNS = 1_000_000, 80
#: Maximum number of edges listed with their traffic between hosts.
MOST_EDGES = 5
#: Maximum number of listed values of a substream.
MOST_VALUES = 3
#: Minimum width in characters of a column with statements; a narrower one is omitted.
_LEAST_OF_SQL = 20
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STATUS = {"active": "green", "expired": "dim", "expiring": "yellow", "rejected": "red",
           "failed": "red"}  # fmt: skip


def print_json(document: Any) -> None:
    """Write ``document`` to standard output, unstyled and complete."""
    text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
    Console(highlight=False, soft_wrap=True, markup=False, emoji=False).print(text)


def read_by_a_person() -> bool:
    """Whether standard output is a terminal; output to files and pipes is never cut."""
    return Console().is_terminal


def print_table(content: RenderableType) -> None:
    """Write ``content`` to standard output.

    On a terminal narrower than 80 columns, lines are wrapped instead of words being split. Outside
    a terminal, lines are as long as needed, and tables have no borders.
    """
    console = Console()
    if console.is_terminal:
        wanted = console.measure(content, options=console.options.update(max_width=_UNBOUNDED))
        if wanted.minimum > console.width:
            console.width = max(console.width, min(wanted.maximum, _LEAST_COLUMNS))
        console.print(content)
        return
    written = io.StringIO()
    Console(file=written, width=_UNBOUNDED, force_terminal=False).print(content)
    lines = written.getvalue().removesuffix("\n").split("\n")
    lines = [line for line in lines if set(line) - {" "} != {"─"}]
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def size(count: int) -> str:
    """A readable number of bytes.

    >>> size(1536), size(12)
    ('1.5 KiB', '12 B')
    """
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def number(value: float | None) -> str:
    """A cell with a readable cost or count; a dash for None.

    >>> number(12345.678), number(None), number(2.5)
    ('12,346', '–', '2.5')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.3g}"


def counted(count: float, noun: str) -> str:
    """A readable count with its noun, such as "1 file" or "0.5 rows"."""
    return f"{number(count)} {noun}{'' if number(count) == '1' else 's'}"


def numbers(*values: float | None) -> Iterator[str]:
    """Readable costs or counts, as cells of a row."""
    return map(number, values)


def percent(value: float | None) -> str:
    """A ratio as a percentage; only exactly 0 and 1 are shown as 0% and 100%.

    >>> percent(0.0125), percent(0.99999)
    ('1.25%', '> 99.99%')
    """
    if value is None:
        return "–"
    if 0.99995 <= value < 1:
        return "> 99.99%"
    return "< 0.01%" if 0 < value < 0.00005 else f"{value:.2%}"


def table_of(*columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table; columns in ``right`` hold numbers. Long texts are folded, never cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    numeric = set(right)
    for column in columns:
        justify: JustifyMethod = "right" if column in numeric else "left"
        table.add_column(column, justify=justify, overflow="fold")
    return table


def lines_table(columns: int) -> Table:
    """An empty table without column heads and lines; long texts are folded."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(columns):
        table.add_column(overflow="fold")
    return table


def facts_table(rows: Mapping[str, object]) -> Table:
    """A table of names and values, a line each."""
    table = lines_table(2)
    table.columns[0].style = "bold"
    for name, value in rows.items():
        table.add_row(name, escape("–" if value is None else str(value)))
    return table


def shortened(text: str) -> Text:
    """A text that may be cut to one line on a narrow terminal (names are wrapped instead)."""
    return Text(" ".join(text.split()), overflow="ellipsis", no_wrap=True)


def _status(status: str) -> Text:
    return Text(status, style=_STATUS.get(status, ""))


@dataclass(frozen=True, slots=True)
class _Yielding:
    """A table whose last column takes the remaining width, and is omitted if that is too small."""

    table: Table

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.table)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        last = self.table.columns[-1]
        wanted = max(console.measure(cell).maximum for cell in (last.header, *last.cells))
        unlimited = options.update(max_width=_UNBOUNDED)
        all_of_it = console.measure(self.table, options=unlimited).maximum
        left = options.max_width - (all_of_it - wanted)
        if left < min(wanted, _LEAST_OF_SQL):
            self.table.columns.pop()
        else:
            last.width = min(wanted, left)
        yield self.table


def queries_table(
    queries: Sequence[QueryOut], spent: Mapping[str, float] = MappingProxyType({})
) -> RenderableType:
    """All queries, a line each, with as much of their SQL as fits.

    Args:
        spent: query -> CPU seconds of its runs; empty if unknown: the column is omitted.
    """
    cpu = ("CPU s",) if spent else ()
    table = table_of(
        "query", "status", "results", "from batch", "to batch", *cpu, "expires", "sql",
        right=("results", "from batch", "to batch", *cpu),
    )  # fmt: skip
    for q in queries:
        table.add_row(
            escape(q.id),
            _query_status(q),
            *numbers(q.results, q.activated_batch, last_batch(q.expired_batch)),
            *([number(spent.get(q.id))] if spent else []),
            moment(q.expires_at),
            shortened(q.sql or "(structured)"),
        )
    return _Yielding(table)


def _query_status(query: QueryOut) -> Text:
    if query.rationed is not None and query.rationed.floor_broken:
        return Text(f"{query.status}, floor broken", style="bold red")
    if not query.input_problems and query.complete == "never" and query.missed:
        return Text(f"{query.status}, rows missing", style="yellow")
    if not query.input_problems:
        return _status(query.status)
    return Text(f"{query.status}, {', '.join(query.input_problems)} not read", style="bold red")


def _objectives(slo: Slo) -> dict[str, object]:
    found: dict[str, object] = {}
    if slo.latency is not None:
        found["latency goal"] = slo.latency
    if slo.freshness:
        found["freshness"] = ", ".join(f"{a}: {text}" for a, text in slo.freshness.items())
    if slo.completeness is not None:
        found["completeness"] = f"{percent(slo.completeness)} or more"
    return found


def runs_table(runs: Sequence[RunOut]) -> RenderableType:
    """The runs of a query, a row each."""
    table = table_of("run", "status", "registered", "epochs", "complete from", "results", "at")
    for run in runs:
        epochs = f"{number(run.first_epoch)} to {number(run.last_epoch)}"
        table.add_row(
            escape(run.run),
            _status(run.status),
            moment(run.created_at),
            epochs,
            moment(run.complete_from) if run.complete_from else run.complete or "",
            str(run.results),
            escape(run.results_at or ""),
        )
    return table


def _past_results(query: QueryOut) -> dict[str, object]:
    """Progress of a query's results over rows stored before it began, if requested."""
    if (past := query.past_results) is not None:
        left = f", {past.rows:,} stored rows to look at" if past.rows else ""
        return {"past": f"{past.status}, {past.results:,} results{left}"}
    since, seen = query.activated_batch, list((query.visible_from or {}).values())
    if since is None or len(seen) < 2 or any(one.batch >= since for one in seen):
        return {}
    return {"past": f"not emitted: rows of before batch {since} join with later ones only"}


def _replacement(found: ReplacementOut | None) -> dict[str, object]:
    """The new run that will replace a query's current one, and the data that it still lacks."""
    if found is None:
        return {}
    why = "it has caught up" if found.waits_because is None else found.waits_because
    remedy = {"to end the wait": found.remedy} if found.remedy else {}
    return {"replaced by": found.run, "when complete": f"{found.status}: {why}", **remedy}


def query_detail(query: QueryOut, spent: float | None = None) -> RenderableType:
    """One query: its normal form and its progress.

    Args:
        spent: CPU seconds of the query's runs since the runtime's start; None: unknown.
    """
    before = "; ".join(batches_text(a.activated_batch, a.expired_batch) for a in query.earlier)
    facts: dict[str, object] = {
        "query": query.id,
        **({"title": query.title} if query.title else {}),
        **({"owner": query.owner} if query.owner else {}),
        **({"tags": ", ".join(query.tags)} if query.tags else {}),
        "status": query.status
        if query.waits_because is None
        else f"{query.status}: {query.waits_because}",
        **({"run": query.run} if query.run not in ("", query.id) else {}),
        "results": query.results,
        **({} if query.results_at is None else {"results at": query.results_at}),
        **({} if query.joined_rows is None else {"joined rows": query.joined_rows}),
        **({} if spent is None else {"CPU seconds": number(spent)}),
        "batches": batches_text(query.activated_batch, query.expired_batch),
        **({"batches before": before} if before else {}),
        "registered": moment(query.created_at),
        "complete from": moment(query.complete_from) if query.complete_from else query.complete,
        **_past_results(query),
        "expires": moment(query.expires_at),
        "window": query.window,
        **_objectives(query.slo),
        **({"reads": ", ".join(query.reads)} if query.reads else {}),
        **({"read by": ", ".join(query.read_by)} if query.read_by else {}),
        "sql": query.sql,
        **_replacement(query.replacement),
    }
    if query.rationed is not None:
        facts["kept under overload"] = f"about {percent(query.rationed.completeness)} of results"
        if query.rationed.owed or query.rationed.caught_up:
            late = f"{query.rationed.caught_up} caught up, about {query.rationed.owed:.0f} to come"
            facts["catch-up"] = late
        if query.rationed.undecided:
            facts["undecided left rows"] = query.rationed.undecided
        if query.rationed.floor_needs is not None:
            broken = ", more than the budget: broken" if query.rationed.floor_broken else ""
            facts["its floor needs"] = (
                f"{percent(query.rationed.floor_needs)} of rationed probes' CPU time{broken}"
            )
    for stream, why in query.input_problems.items():
        facts[f"{stream} is not read"] = why
    if query.sink_problem is not None:
        facts["sink"] = query.sink_problem
    if query.problem is not None:
        facts["problem"] = f"{query.problem.field}: {query.problem.message}"
        facts["remedy"] = query.problem.remedy
    if query.failure is not None:
        facts["failed"] = f"in batch {query.failure.batch}: {query.failure.message}"
        facts["expression"] = query.failure.expression
        facts["remedy"] = query.failure.remedy
    output = table_of("output column", "type")
    for column in query.normalised.output:
        output.add_row(escape(column.name), column.type)
    view, branches = query.normalised.view, query.normalised.branches
    facts |= {"union of": "; ".join(map(", ".join, branches))} if branches else {}
    if view is not None:
        facts |= view_facts(view)
    outer = query.normalised.outer
    if outer is not None:
        if outer.look_ups:
            joins = [f"{one.join} with {one.partner}" for one in outer.look_ups]
            facts["changes by" if outer.changes else "looks up"] = ", ".join(joins)
        else:
            facts[f"{outer.kind} join with"] = outer.partner
        facts["partners until"] = outer.deadline
        facts["where"] = " AND ".join(outer.where) or None
    notes = [Text(f"note: {note}", style="yellow") for note in query.normalised.notes]
    return Group(facts_table(facts), output, *notes, *missed_notes(query.missed))


def missed_notes(missed: Sequence[MissedOut]) -> list[Text]:
    """A warning for each stream with rows that were read before the query began, and not stored."""
    return [Text(f"warning: {m.message}; {m.remedy}", style="bold yellow") for m in missed]


def epochs_table(epochs: Sequence[EpochSummary]) -> RenderableType:
    """Published epochs, a line each."""
    table = table_of(
        "epoch", "first batch", "optimizer", "queries", "cost", "individually", "gap", "ms",
        right=("epoch", "first batch", "queries", "cost", "individually", "gap", "ms"),
    )  # fmt: skip
    for e in epochs:
        table.add_row(
            str(e.epoch),
            number(e.first_batch),
            e.optimizer,
            str(len(e.queries)),
            *numbers(e.cost, e.individual_cost),
            percent(e.gap),
            number(e.solve_ms),
        )
    return table


def revisions_table(found: RevisionList) -> RenderableType:
    """The revisions of an epoch's ruleset, a line each."""
    table = table_of(
        "revision", "before batch", "why", "cost", "instead of", "predicted", "measured", "ms",
        "stores dropped",
        right=("before batch", "cost", "instead of", "predicted", "measured", "ms"),
    )  # fmt: skip
    for r in found.items:
        table.add_row(
            f"{r.epoch}.{r.revision}",
            number(r.next_batch),
            escape(" after ".join([r.reason, *r.drifted[:1]]) + " while rationed" * r.rationed),
            *numbers(r.cost, r.running_cost),
            percent(r.predicted),
            _measured(r),
            number(r.plan_ms),
            escape(", ".join(r.closed)),
        )
    return table


def _measured(revision: RevisionRecord) -> str:
    if (found := revision.measured) is None:
        return f"undoes {percent(lost.gain)}" if (lost := revision.undoes) else percent(None)
    older = f" of {found.baseline}, predicted {percent(found.predicted)}"
    return percent(found.gain) + older * (found.baseline not in ("", revision.baseline))


def switching_charge(cost: float) -> dict[str, object]:
    """The plan's switching charge (penalty for new steps and stores); empty if there is none."""
    return {"switching": f"{number(cost)} charged for what is new"} if cost else {}


def settings_table(settings: SettingsOut) -> Table:
    """Planning settings and their values."""
    unset = {
        "memory": "any",
        "copies": "any",
        "intermediate_results": "any",
        "revision_gain": "no revisions",
        "capacity": "measured",
    }
    return facts_table(
        {k: unset.get(k, "-") if v is None else v for k, v in settings.document().items()}
    )


def epoch_detail(epoch: EpochOut) -> RenderableType:
    """One epoch with its probe orders as trees."""
    facts: dict[str, object] = {
        "epoch": epoch.epoch,
        "first batch": epoch.first_batch,
        "published": moment(epoch.published_at),
        "optimizer": f"{epoch.optimizer} ({epoch.objective}), by {epoch.method}",
        "queries": ", ".join(epoch.queries) or "none",
        "cost": f"{number(epoch.cost)} (individually {number(epoch.individual_cost)})",
        **switching_charge(epoch.switching_cost),
        "gap": percent(epoch.gap),
        "solved in": f"{number(epoch.solve_ms)} ms",
    }
    for past in epoch.explain.get("backfill", ()):
        facts[f"past of {past['label']}"] = _past(past)
    if epoch.ahead is not None and epoch.ahead.arrivals:
        tuples = ", ".join(f"{number(n)} of {name}" for name, n in epoch.ahead.arrivals.items())
        facts["expected arrivals"] = f"{tuples} (from {counted(epoch.ahead.periods, 'period')})"
    if epoch.costs is not None:
        facts["unit of cost"] = f"CPU seconds per epoch, {_fitted(epoch.costs)}"
    facts.update(_exchange(epoch.explain.get("exchange")))
    facts.update(_ahead(epoch.explain.get("look_ahead")))
    facts.update(_hot(epoch.explain.get("hot_keys")))
    if epoch.fallback:
        facts["fallback"] = epoch.fallback
    return Group(facts_table(facts), *rejections(epoch.rejected), *plan_trees(epoch.explain))


def _exchange(expected: Mapping[str, Any] | None) -> dict[str, object]:
    """The expected traffic between hosts per batch; empty on one host."""
    if expected is None:
        return {}
    edges: dict[str, dict[str, float]] = expected["edges"]
    total = sum(one["bytes"] for one in edges.values())
    sending = [edge for edge, one in edges.items() if one["bytes"]]
    most = sorted(sending, key=lambda edge: (-edges[edge]["bytes"], edge))[:MOST_EDGES]
    shares = ", ".join(f"{edge} {size(round(edges[edge]['bytes']))}" for edge in most)
    text = f"{size(round(total))} a batch between {expected['hosts']} hosts"
    return {"sends": f"{text}: {shares}" if shares else text}


def _first(texts: Sequence[str]) -> str:
    """The first :data:`MOST_EDGES` of ``texts``, and the number of the others."""
    more = f", and {len(texts) - MOST_EDGES} more" if len(texts) > MOST_EDGES else ""
    return ", ".join(texts[:MOST_EDGES]) + more


def _ahead(asked: Sequence[Mapping[str, Any]] | None) -> dict[str, object]:
    """Look-ahead filters of probes, each with the expected share of tuples that pass."""
    if not asked:
        return {}
    texts = [
        f"{one['start']} before {one['probe']} in {one['asked']} ({percent(one['left'])} pass)"
        for one in asked
    ]
    return {"look-ahead filters": _first(texts)}


def _hot(dealt: Mapping[str, Any] | None) -> dict[str, object]:
    """Frequent key values whose new rows a plan spreads over several hosts, and the expected load
    of the busiest host; empty if there are no such values."""
    if not dealt:
        return {}
    values: list[dict[str, Any]] = dealt["values"]
    texts = [f"{one['attribute']} = {one['value'] or '?'} to {one['hosts']}" for one in values]
    expected = f"{dealt['after']:.2f} times the mean host's, {dealt['before']:.2f} without"
    return {"spread over hosts": _first(texts), "busiest host": f"load {expected}"}


def rejections(rejected: Mapping[str, ProblemRecord]) -> list[Text]:
    """A line for each query that could not be planned."""
    lines = (f"rejected {name}: {problem.message}" for name, problem in rejected.items())
    return [Text(line, style="red") for line in lines]


def _fitted(costs: CostsRecord) -> str:
    if costs.error is None:
        return "by default constants, not fitted yet"
    fitted = counted(costs.measurements, "measurement")
    return f"by constants fitted to {fitted} (error {costs.error:.0%})"


def _past(past: Mapping[str, Any]) -> str:
    """Source of older rows for probes of a new intermediate result: base stores, or a backfill."""
    how = "computed in the background" if past["chosen"] else "answered from base stores"
    costs = f"backfill {number(past['cost'])}, coverage {number(past['coverage'])}"
    return f"{how} ({past['reason']}; {costs})"


def current_detail(current: CurrentEpoch) -> RenderableType:
    """The running epoch, and the runtime's progress."""
    runtime = current.runtime
    said = "not started" if runtime is None else runtime.state
    backfill = {} if runtime is None else runtime.backfill
    stale = runtime is not None and runtime.stale and said not in ("stopped", "failed")
    facts = {
        "running epoch": current.running,
        "by the rules of": current.epoch.epoch,
        "runtime": f"no heartbeat (it was {said})" if stale else said,
        **({} if runtime is None or not runtime.standby else {"standby": runtime.standby}),
        "batches": None if runtime is None else runtime.committed,
        "input tuples": None if runtime is None else runtime.input_tuples,
        "state": None if runtime is None else size(runtime.state_bytes),
        **{f"backfill of {store}": percent(part) for store, part in backfill.items()},
    }
    if current.saving is not None:
        facts["CPU time saved"] = saving_text(current.saving)
    rationing = None if runtime is None else runtime.rationing
    if rationing is not None and rationing.policy != "wait":
        facts["load"] = f"{percent(rationing.needed)} of the machine's capacity"
        facts["budget of rationed probes"] = percent(rationing.budget)
    if rationing is not None and rationing.owed:
        facts["catch-up"] = f"results of {rationing.owed} batches to come"
    return Group(facts_table(facts), epoch_detail(current.epoch))


def plan_trees(explain: Mapping[str, Any]) -> list[Tree]:
    """The probe trees of a plan: equal steps of different orders are one node."""
    kinds = _kinds(explain)
    trees: dict[tuple[str, str, int], Tree] = {}
    nodes: dict[int, Tree] = {}
    steps = {step["id"]: step for step in explain.get("steps", ())}
    goals = [(q["id"], o) for q in explain.get("queries", ()) for o in q["orders"]]
    goals += [(k["label"], o) for k in explain.get("maintenance", ()) for o in k["orders"]]
    for goal, order in goals:
        substream = order.get("substream", 0)
        if kinds and (order["start"], substream) not in kinds and substream:
            continue  # Its tuples take the same orders as another substream's.
        root = (order["owner"], order["start"], substream)
        if root not in trees:
            owner = f" for {order['owner']}" if order["owner"] else ""
            title = f"{order['start']}{kinds.get(root[1:], '')}{owner}"
            trees[root] = Tree(Text(title, style="bold"))
        node = trees[root]
        for step in (steps[number] for number in order["steps"]):
            if step["id"] not in nodes:
                cast = " to all partitions" if step["broadcast"] else ""
                label = f"{step['store']}{cast}  cost {number(step['cost'])}"
                nodes[step["id"]] = node.add(Text(label))
            node = nodes[step["id"]]
        node.add(Text(f"⇒ {goal}", style="green"))
    return list(trees.values())


def _kinds(explain: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """(label of the arriving tuple, substream) -> the substream's key values, and savings of its
    probe orders. Substreams with equal orders are described together, under the first of them."""
    found = {}
    for divided in explain.get("substreams", ()):
        alike: dict[int, list[dict[str, Any]]] = {}
        for one in divided["substreams"]:
            alike.setdefault(one["same_as"], []).append(one)
        for number, some in alike.items():
            nulls = sum(one.get("nulls", 0.0) for one in some)
            text = f"all others, NULL {percent(nulls)}" if nulls else "all others"
            if not any(one["others"] for one in some):
                values = [value["value"] or "?" for one in some for value in one["values"]]
                more = f" or {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else ""
                text = f"{divided['attribute']} = {', '.join(values[:MOST_VALUES])}{more}"
                otherwise = sum(one["otherwise"] for one in some)
                if otherwise:
                    saved = 1 - sum(one["cost"] for one in some) / otherwise
                    text += f"; saves {percent(saved)}"
            share = percent(sum(one["share"] for one in some))
            kind = f" ({text}; {share} of its tuples)" if len(alike) > 1 else ""
            found[divided["start"], number] = kind
    return found


def shared_lines(explain: Mapping[str, Any]) -> list[str]:
    """Sentences about stores and steps that queries share, the most widely shared first.

    They name intermediate results that several queries probe, and paths of steps that are executed
    once for several queries. A path that is a prefix of another with the same users is omitted.
    """
    queries = {query["id"] for query in explain.get("queries", ())}
    kept = {(k["mir"], k["owner"]): k["label"] for k in explain.get("maintenance", ())}
    found: list[tuple[int, str]] = []
    for (mir, owner), label in kept.items():
        users = {
            user
            for store in explain.get("stores", ())
            if (store["mir"], store["owner"]) == (mir, owner)
            for user in store["used_by"]
        }
        found.append((len(users & queries), f"{label} is kept for {', '.join(sorted(users))}"))
    paths: dict[tuple[str, ...], tuple[str, ...]] = {}
    steps = {step["id"]: step for step in explain.get("steps", ())}
    for goal in (*explain.get("queries", ()), *explain.get("maintenance", ())):
        for order in goal["orders"]:
            path: tuple[str, ...] = (order["start"],)
            for step in (steps[number] for number in order["steps"]):
                path = (*path, step["store"])
                paths[path] = tuple(step["shared_by"])
    for path, names in paths.items():
        longer = any(
            len(other) > len(path) and other[: len(path)] == path and users == names
            for other, users in paths.items()
        )
        if not longer:
            sentence = f"⟨{', '.join(path)}⟩ is probed once for {', '.join(names)}"
            found.append((len(queries & set(names)), sentence))
    return [sentence for count, sentence in sorted(found, key=lambda f: -f[0]) if count > 1]


def report_tables(report: Mapping[str, Any]) -> RenderableType:
    """The report of a replay as tables."""
    facts = {
        "batches": report["batches"],
        "input tuples": f"{report['input_tuples']:,}",
        "input tuples/s": number(report["input_tuples_per_s"]),
        "took": f"{took(report['seconds'])} ({took(report['cpu_seconds'])} of CPU)",
        "peak memory": size(report["peak_rss_bytes"]),
        "state": size(report["state_bytes"]),
        "late": sum(report["late_tuples"].values()),
        "invalid": sum(report["invalid_tuples"].values()),
        "ahead": sum(report["ahead_tuples"].values()),
    }
    queries = table_of("query", "status", "results", "from batch", "to batch",
                     right=("results", "from batch", "to batch"))  # fmt: skip
    errors = []
    for name, q in report["queries"].items():
        queries.add_row(
            escape(name),
            _status(q["status"]),
            *numbers(q["results"], q["activated_batch"], q["expired_batch"]),
        )
        if q["error"]:
            errors.append(Text(f"{name}: {q['error'].get('detail', '')}", style="red"))
    epochs = table_of("epoch", "first batch", "optimizer", "cost", "individually", "probes",
                    right=("epoch", "first batch", "cost", "individually", "probes"))  # fmt: skip
    for e in report["epochs"]:
        epochs.add_row(
            str(e["epoch"]),
            number(e["first_batch"]),
            e["optimizer"],
            *numbers(e["cost"], e["individual_cost"], e["probes"]),
        )
    return Group(facts_table(facts), queries, *errors, epochs)


def saving_text(saving: SavingOut) -> str:
    """The mean saving with its range, its time span, and the CPU seconds it is computed from."""
    spread = f" ({saving.lowest:.1%} to {saving.highest:.1%} in {saving.epochs} epochs)"
    shown = f"{saving.share:.1%}{spread if saving.epochs > 1 else ''}"
    return (
        f"{shown}, estimated over {saving.seconds:.0f} s: "
        f"{saving.cpu_seconds:.2g} CPU s instead of {saving.individual_cpu_seconds:.2g} with each "
        "query alone"
    )


def last_batch(expired: int | None) -> int | None:
    """Return the last batch of an activation, the one before ``expired``; None while active."""
    return None if expired is None else expired - 1


def batches_text(activated: int | None, expired: int | None) -> str:
    """First and last batch of an activation, as text.

    >>> batches_text(3, 7), batches_text(3, None), batches_text(3, 3), batches_text(None, None)
    ('3 to 6', 'from 3 on', 'none', 'none so far')
    """
    if activated is None:
        return "none so far"
    last = last_batch(expired)
    if last is None:
        return f"from {activated:,} on"
    return f"{activated:,} to {last:,}" if last >= activated else "none"
