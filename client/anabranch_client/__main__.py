"""``python -m anabranch_client`` runs the ``anabranch`` command line."""

from __future__ import annotations

from anabranch_client.cli.app import app

app(prog_name="anabranch")
