"""``python -m anabranch_planner``: the command in :mod:`anabranch_planner.command.cli`."""

from __future__ import annotations

from anabranch_planner.command.cli import app

app(prog_name="python -m anabranch_planner")
