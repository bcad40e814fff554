"""``python -m anabranch_planner``; see :mod:`anabranch_planner.cli`."""

from __future__ import annotations

from anabranch_planner.cli import app

app(prog_name="python -m anabranch_planner")
