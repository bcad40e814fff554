"""Test of the project examples/dbt with dbt itself on a pipeline; its models have
DuckDB's results.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from anabranch_client.rest.api import Client
from anabranch_client.supervise.home import holder_of
from examples.__main__ import equal, rows, wait
from examples.example import SLICES, Example, connect, current
from tests.support.documents.pages import ROOT
from tests.support.worlds.up import upped

PROJECT = ROOT / "examples" / "dbt"
DBT = Path(os.environ.get("ANABRANCH_DBT", ROOT / ".venv-dbt" / "bin" / "dbt"))
MODELS = ("runs", "connecting_runs", "runs_by_host", "hosts")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not DBT.is_file(), reason="make dbt installs dbt"),
]


class Project:
    """A copy of the dbt project in ``folder``, run against the service at ``url``."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.lake = folder / "project", folder / "lake"
        self.models = self.folder / "models"
        self.lake.mkdir()
        self.models.mkdir(parents=True)
        for path in (*PROJECT.glob("*.yml"), *PROJECT.glob("models/*")):
            (self.folder / path.relative_to(PROJECT)).write_text(path.read_text())
        packages = ("client/dbt_anabranch", "client", "contract")
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in packages),
            "ANABRANCH_URL": url,
            "ANABRANCH_LAKE": str(self.lake),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "DBT_PROFILES_DIR": str(self.folder),
        }

    def dbt(self, *arguments: str, code: int = 0) -> str:
        """Run a dbt command, which must end with ``code``; return its output."""
        run = subprocess.run(
            [str(DBT), "--no-use-colors", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert run.returncode == code, run.stdout + run.stderr
        return run.stdout

    def run(self, *arguments: str) -> dict[str, str]:
        """Run ``dbt run``; return model -> outcome."""
        printed = self.dbt("run", *arguments)
        return dict(re.findall(r"OK created sql \w+ model (\w+) \.+ \[(\w+) in", printed))


def test_models_are_queries(tmp_path: Path) -> None:
    security = Example.read("security")
    allowed = ("--port", "0", "--master", "local[2]", "--allow-path", str(tmp_path))
    with upped(tmp_path / "up", arguments=allowed) as up, up.client() as client:
        holder = holder_of(up.home)
        assert holder is not None
        for body in security.bodies(tmp_path / "in"):
            Path(body["source"]["path"]).mkdir(parents=True)
            columns = list(body.pop("columns").items())
            client.create_stream(body.pop("name"), columns, **body)
        project = Project(tmp_path, holder.url)
        assert project.run() == dict.fromkeys(MODELS, "created")
        wait("active queries", lambda: _active(client))
        for part in range(SLICES):
            security.write(tmp_path / "in", part)
        check_answers(client, project, security)
        check_tests(client, project)
        check_documentation(project)
        check_changes(client, project)


def _active(client: Client) -> bool:
    return all(client.query(name).status == "active" for name in MODELS)


def check_answers(client: Client, project: Project, security: Example) -> None:
    """Check that DuckDB has the same results for the compiled models."""
    compiled = {path.stem: path.read_text() for path in project.folder.glob("target/run/**/*.sql")}
    with connect() as duck:
        security.fill(duck)
        for name in MODELS:
            duck.execute(f"CREATE VIEW {name} AS {compiled[name]}")
        for name in MODELS:
            wanted = rows(duck, f"FROM {name}")
            assert wanted
            query = client.query(name)
            if name == "hosts":
                wait("rows of hosts", partial(_table_is, duck, project.lake / "hosts", wanted))
                continue
            view = query.normalised.view
            output = [one.name for one in query.normalised.output]
            identity = None if view is None else view.identity
            answer = current(Path(str(query.results_at)), output, identity)
            wait(f"rows of {name}", partial(equal, duck, answer, wanted))


def _table_is(duck: Any, path: Path, wanted: list[tuple[str, ...]]) -> bool:
    try:
        duck.register("present", DeltaTable(str(path)).to_pyarrow_table())
    except TableNotFoundError:
        return False
    sql = "SELECT host, runs, connections FROM present WHERE anabranch_count > 0"
    return rows(duck, sql) == wanted


def check_tests(client: Client, project: Project) -> None:
    """Check that data tests pass, if the service has the required route."""
    routes = client._http.get("/openapi.json").json()["paths"]
    if "/v1/queries:sql" in routes:
        assert "PASS=4 WARN=0 ERROR=0" in project.dbt("test")
    else:
        assert "POST /v1/queries:sql: Not Found" in project.dbt("test", code=1)


def check_documentation(project: Project) -> None:
    """Check that dbt's catalog has the columns of models and sources."""
    project.dbt("docs", "generate")
    catalog = (project.folder / "target" / "catalog.json").read_text()
    assert all(f'"model.detections.{name}"' in catalog for name in MODELS)
    assert '"source.detections.events.downloads"' in catalog
    assert "anabranch_change" not in catalog


def check_changes(client: Client, project: Project) -> None:
    """Check that unchanged models stay, changed ones are replaced with their readers, refreshed
    ones restart.
    """
    assert project.run() == dict.fromkeys(MODELS, "none")
    model = project.models / "runs.sql"
    model.write_text(model.read_text().replace("'10' MINUTE", "'15' MINUTE"))
    refused = project.dbt("run", "-s", "runs", code=1)
    assert "it is read by connecting_runs, hosts, runs_by_host, not selected" in refused
    assert client.query("runs").run == "runs"
    begun = {"runs": "replaced", **dict.fromkeys(MODELS[1:], "created")}
    assert project.run("-s", "runs+") == begun
    assert "15" in str(client.query("runs").sql)
    assert client.query("hosts").sink.path == str(project.lake / "hosts~2")
    assert project.run("-s", "hosts", "--full-refresh") == {"hosts": "replaced"}
    model.write_text(model.read_text().replace("d.host", "d.hots"))
    assert "there is no column 'hots'" in project.dbt("run", "-s", "runs+", code=1)
