"""``anabranch plan held``, ``approve`` and ``refuse``: the held plan."""

from __future__ import annotations

from functools import partial
from typing import Literal

import typer

from anabranch_client.cli.context import Json, Url, Yes, confirm, connect, show
from anabranch_client.cli.planning import plans
from anabranch_client.render.dry_run import MAX_LINES
from anabranch_client.render.held import NEXT, held_plan_detail
from anabranch_client.render.tables import read_by_a_person
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_contract.rest.planning.epochs import HeldPlanOut


@plans.command("held")
def plan_held(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show the held plan: its changes and its cost."""
    with connect(url) as client:
        _show(client.held_plan(), as_json)


@plans.command("approve")
def plan_approve(yes: Yes = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Publish the held plan at the next epoch boundary, after showing it."""
    _say("approve", yes, url, as_json)


@plans.command("refuse")
def plan_refuse(yes: Yes = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Refuse the held plan until queries, streams or settings change."""
    _say("refuse", yes, url, as_json)


def _say(word: Literal["approve", "refuse"], yes: bool, url: str, as_json: bool) -> None:
    with connect(url) as client:
        seen = client.held_plan()
        if not as_json:
            _show(seen, as_json)
        confirm(yes=yes or as_json)
        say = client.approve_plan if word == "approve" else client.refuse_plan
        answer = say(seen.version)
    if as_json:
        _show(answer, as_json)
    else:
        typer.echo(NEXT.get(answer.state, answer.state))


def _show(plan: HeldPlanOut, as_json: bool) -> None:
    most = MAX_LINES if read_by_a_person() else None
    show(plan, partial(held_plan_detail, most=most), as_json)
