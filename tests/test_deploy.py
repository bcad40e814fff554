"""Tests that variables, options, ports, paths and names in ``deploy/`` agree with the code.

Whether a chart renders, and to what Kubernetes takes, is checked by ``make check-deploy``.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from anabranch_contract.spark_settings import spark_setting
from anabranch_service.routes.system import router
from anabranch_service.settings import ENV_PREFIX, OPTIONS, ServiceSettings

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "anabranch"
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted((*DEPLOY.rglob("*"), ROOT / "docs" / "deployment.md"))
    if path.is_file() and path.suffix != ".json" and "__pycache__" not in path.parts
}
JARS = Path(pyspark.__file__).parent / "jars"
#: Prefixes of settings whose ends users choose.
GROUPS = (
    *("spark.executorEnv.", "spark.yarn.appMasterEnv."),
    *("spark.kubernetes.executor.volumes.", "spark.kubernetes.executor.secretKeyRef."),
)
#: Names that Spark constructs when it is loaded.
MADE_OF_PARTS = {"spark.kubernetes.authenticate.executor.serviceAccountName"}
#: Options that the launcher sets, that other pages describe, or that only replays have.
NOT_TABLED = {
    *("--help", "--run", "--error-fd", "--revise-batches"),
    *("--allow-path", "--allow-host", "--allow-format", "--reserve-path", "--read-only-path"),
}
#: Variables of the compose file itself, which only it reads.
COMPOSED = {"ANABRANCH_INPUT", "ANABRANCH_STANDBY_PORT"}
DOCKERFILE = TEXTS["deploy/Dockerfile"]
VALUES: dict[str, Any] = yaml.safe_load(TEXTS["deploy/helm/anabranch/values.yaml"])


@cache
def _source(*rooms: str) -> str:
    return "\n".join(path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py"))


def _known_variables() -> set[str]:
    """Return the variables that some package reads by name, or as settings of the service."""
    read = set(re.findall(r"\bANABRANCH_[A-Z_]+\b", _source("contract", "runtime", "client")))
    return read | {ENV_PREFIX + name.upper() for name in OPTIONS}


def _options(module: str) -> set[str]:
    """Return the options in a command's help."""
    done = subprocess.run(
        [sys.executable, "-m", *module.split(), "--help"],
        capture_output=True, text=True, check=True, env={"COLUMNS": "300", **_environment()},
    )  # fmt: skip
    return set(re.findall(r"--[a-z][a-z-]+", done.stdout))


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "COLUMNS" and "ANABRANCH" not in k}


@pytest.mark.parametrize("name", TEXTS)
def test_variables_are_read_by_the_code(name: str) -> None:
    named = set(re.findall(r"\bANABRANCH_[A-Z][A-Z_]*[A-Z]\b", TEXTS[name]))
    families = {"ANABRANCH_SOURCE", "ANABRANCH_SINK", "ANABRANCH_URL", "ANABRANCH_TOKEN"}
    assert named - _known_variables() - families - COMPOSED == set()


def test_every_variable_of_a_cluster_is_in_the_chart() -> None:
    chart = "\n".join(t for name, t in TEXTS.items() if "/templates/" in name)
    for variable in (
        *("ANABRANCH_REDIS_URL", "ANABRANCH_MASTER", "ANABRANCH_OBJECT_STORE"),
        *("ANABRANCH_CACHE_DIRECTORY", "ANABRANCH_MEETING_PORT", "ANABRANCH_SPARK_CONF"),
    ):
        assert f"name: {variable}" in chart, variable


def test_options_that_are_named_exist() -> None:
    known = {
        "anabranch_runtime": _options("anabranch_runtime"),
        "anabranch_service": _options("anabranch_service"),
        "anabranch up": _options("anabranch_client up"),
    }
    for name, text in TEXTS.items():
        for command, options in known.items():
            for line in re.findall(rf"{command}\b([^\n`|]*(?:\\\n[^\n`]*)*)", text):
                used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line))
                assert used <= options, (name, command, line)
    # Compared with the runtime's table of options.
    table = set(re.findall(r"^\| `(--[a-z-]+)` \|", TEXTS["deploy/README.md"], re.MULTILINE))
    assert table == known["anabranch_runtime"] - NOT_TABLED


def test_probes_and_scrapes_ask_for_routes_that_exist() -> None:
    routes = {route.path for route in router.routes if hasattr(route, "path")}
    chart = "\n".join(t for name, t in TEXTS.items() if "/templates/" in name)
    asked = set(re.findall(r"httpGet: \{path: ([^,}]+)", chart))
    asked |= set(re.findall(r"^ +path: (/\w+)$", chart, re.MULTILINE))
    asked |= {f"/{path}" for path in re.findall(r"127\.0\.0\.1:8080/(\w+)", DOCKERFILE)}
    assert asked == {"/healthz", "/metrics"}
    assert asked <= routes


def test_ports_agree() -> None:
    ports = VALUES["runtime"]["ports"]
    assert VALUES["service"]["port"] == ServiceSettings().port
    assert VALUES["service"]["flightPort"] == ServiceSettings().tables.flight_port
    exposed = set(re.findall(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE))
    assert exposed == {str(ServiceSettings().port), " ".join(map(str, sorted(ports.values())))}
    application = _sparkapplication()
    conf = application["spec"]["sparkConf"]
    assert conf["spark.driver.port"] == str(ports["driver"])
    assert conf["spark.driver.blockManager.port"] == str(ports["blockManager"])
    given = {e["name"]: e.get("value") for e in application["spec"]["driver"]["env"]}
    assert given["ANABRANCH_MEETING_PORT"] == str(ports["meeting"])
    for name in ("standalone", "yarn"):
        text = TEXTS[f"deploy/{name}/anabranch.env"]
        assert f"ANABRANCH_MEETING_PORT={ports['meeting']}" in text
        assert f"spark.driver.port={ports['driver']}\n" in text


def test_settings_of_spark_are_taken_and_known_to_spark() -> None:
    lines = [
        line
        for name in ("standalone", "yarn")
        for line in TEXTS[f"deploy/{name}/anabranch.env"].splitlines()
        if line.startswith("spark.")
    ]
    helpers = TEXTS["deploy/helm/anabranch/templates/_helpers.tpl"]
    keys = set(re.findall(r'"(spark\.[\w.]+)', helpers))
    keys |= {*VALUES["runtime"]["sparkConf"], *_sparkapplication()["spec"]["sparkConf"]}
    keys |= {spark_setting(line)[0] for line in lines}
    keys |= {key.rstrip(".") for key in re.findall(r"\bspark\.[\w.]+", TEXTS["docs/deployment.md"])}
    # Class names, and the page's names for groups of settings.
    keys = {key for key in keys if not key.startswith("spark.deploy.")} - {
        *("spark.jars", "spark.hadoop", "spark.sql"),
    }
    assert len(keys) > 30
    known = _words_of_spark()
    for key in keys - MADE_OF_PARTS:
        assert key in known or key.startswith(GROUPS), key
    assert set(GROUPS) - {"spark.kubernetes.executor.secretKeyRef."} <= known


@cache
def _words_of_spark() -> frozenset[str]:
    """Return names of settings, and prefixes of such, in Spark's classes that declare them."""
    declaring = re.compile(
        r"/(config/[\w$]+|Config\$|SQLConf\$|SqlApiConfHelper\$|SparkConf|TransportConf|Client)\.class$"
    )
    found = set()
    for jar in ("kubernetes", "yarn", "core", "sql-api", "catalyst", "network-common"):
        (path,) = JARS.glob(f"spark-{jar}_*.jar")
        with zipfile.ZipFile(path) as archive:
            for name in filter(declaring.search, archive.namelist()):
                text = archive.read(name).decode("latin-1")
                found |= set(re.findall(r"spark\.[\w.]+", text))
    return frozenset(found)


def test_the_images_entry_points_exist() -> None:
    modules = set(re.findall(r"python -m ([\w.]+)", DOCKERFILE))
    modules |= set(re.findall(r'CMD \["python", "-m", "([\w.]+)"', DOCKERFILE))
    assert {"anabranch_service", "anabranch_runtime"} <= modules
    for module in modules - {"venv"}:
        package = module.split(".")[0]
        path = ROOT / package.removeprefix("anabranch_") / Path(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for path in (p for line in copied for p in line.split() if p != "."):
        assert (ROOT / path).exists(), path
        top = path.split("/")[0]
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        assert any(line.removeprefix("!").split("/")[0] == top for line in ignored), path
    home = _sparkapplication()["spec"]["mainApplicationFile"]
    assert home == "local:///opt/spark/runtime.py"
    assert "deploy/image/entrypoint.sh deploy/image/runtime.py /opt/spark/" in DOCKERFILE
    assert (DEPLOY / "image" / "entrypoint.sh").stat().st_mode & 0o111


def test_spark_has_what_its_containers_are_started_by() -> None:
    (jar,) = JARS.glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as archive:
        names = set(archive.namelist())
        constants = archive.read("org/apache/spark/deploy/k8s/Constants$.class")
    script = TEXTS["deploy/image/entrypoint.sh"]
    (backend,) = re.findall(r"(org\.apache\.spark\.\S+Backend)", script)
    assert f"{backend.replace('.', '/')}.class" in names
    variables = set(re.findall(r"\$\{?(SPARK_[A-Z_]+)", script)) - {"SPARK_HOME"}
    assert len(variables) > 8
    for variable in variables:
        assert variable.encode() in constants, variable
    # Spark mounts settings there, and runs a Python program with the installed version's name.
    assert b"/opt/spark/conf" in constants
    assert _sparkapplication()["spec"]["sparkVersion"] == pyspark.__version__


def test_the_images_have_what_their_rooms_import() -> None:
    providers = packages_distributions()
    more: list[str]
    for room, parts, more in (
        ("service", ("contract", "planner", "service"), ["tables"]),
        ("runtime", ("contract", "runtime"), []),
    ):
        done = subprocess.run(
            [sys.executable, DEPLOY / "image" / "requirements.py", room, *more],
            capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        given = {_canonical(re.split(r"[<>=\[]", line)[0]) for line in done.stdout.split()}
        # Packages that other requirements bring.
        given |= {"py4j", "starlette", "llvmlite", "h11", "pydantic-core"}
        wanted = {
            _canonical(providers[name][0])
            for name in _imports(*parts)
            if name in providers and not name.startswith("anabranch_")
        }
        # Needed by the planner's own command and TPC-H only.
        assert wanted - given <= {"typer", "rich", "pyyaml", "click"}, room


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imports(*rooms: str) -> set[str]:
    """Return the top-level names that modules of ``rooms`` import, at once or later."""
    found = set()
    for room in rooms:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.split(".")[0])
    return found


def test_versions_are_the_packages() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version
    images = (VALUES["image"]["service"], VALUES["image"]["runtime"])
    assert images == (f"anabranch-service:{version}", f"anabranch-runtime:{version}")
    assert _sparkapplication()["spec"]["image"] == images[1]


def test_the_chart_has_the_dashboard_and_the_alerts_that_are_there() -> None:
    assert (CHART / "files" / "alerts.yaml").resolve() == DEPLOY / "prometheus" / "alerts.yaml"
    dashboard = (CHART / "files" / "dashboard.json").resolve()
    assert dashboard == DEPLOY / "grafana" / "anabranch.json"


def test_values_are_used_and_those_that_are_used_are_there() -> None:
    templates = "\n".join(t for name, t in TEXTS.items() if "/templates/" in name)
    for path in re.findall(r"\.Values\.([A-Za-z.]+)", templates):
        found: Any = VALUES
        for name in path.split("."):
            assert name in found, path
            found = found[name]
    for name in VALUES:
        assert f".Values.{name}" in templates, name


def _sparkapplication() -> dict[str, Any]:
    application: dict[str, Any] = next(
        yaml.safe_load_all(TEXTS["deploy/kubernetes/sparkapplication.yaml"])
    )
    return application
