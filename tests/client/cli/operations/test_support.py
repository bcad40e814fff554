"""Tests of the command ``anabranch support-bundle``."""

from __future__ import annotations

import zipfile
from pathlib import Path

from typer.testing import CliRunner

from anabranch_client.cli.app import app
from tests.support.worlds.service import Service


def test_a_bundle_is_written_once_and_what_is_missing_named(
    service: Service, tmp_path: Path
) -> None:
    out, url = tmp_path / "bundle.zip", f"http://127.0.0.1:{service.settings.port}"
    command = ["support-bundle", "--out", str(out), "--url", url, "--dir", str(tmp_path)]
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0, made.stderr
    assert made.stdout.strip() == str(out)
    assert "left out: service/plan.json" in made.stderr
    with zipfile.ZipFile(out) as archive:
        assert "service/queries.json" in archive.namelist()
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
    assert "File exists" in again.stderr
