"""Check the files of this folder without a cluster: ``make check-deploy``.

Helm's library lints and renders the chart with the values in ``helm/anabranch/ci``; the result and
the other manifests are validated against the schemas of Kubernetes. Kinds of other owners have no
schema there, and are only parsed. hadolint checks the Dockerfile.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import yaml

FOLDER = Path(__file__).resolve().parent
CHART = FOLDER / "helm" / "anabranch"
#: The oldest and the newest release of Kubernetes that manifests are compared with.
RELEASES = ("1.27", "1.34")
#: Kinds that others define.
FOREIGN = {"PrometheusRule", "ServiceMonitor", "SparkApplication"}


def mistakes(document: dict[str, Any], where: str) -> list[str]:
    """Schema violations of a manifest."""
    found = []
    for release in RELEASES:
        try:
            kubernetes_validate.validate(document, release, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            if document["kind"] not in FOREIGN:
                found.append(f"{where}: {document['kind']} is unknown")
        except kubernetes_validate.ValidationError as error:
            path = ".".join(map(str, error.path))
            found.append(f"{where}: {document['kind']}: {path}: {error.message}")
    return found


def documents(text: str) -> list[dict[str, Any]]:
    """The manifests in ``text``."""
    return [document for document in yaml.safe_load_all(text) if document]


def rendered(values: Path) -> list[str]:
    """Mistakes of the chart with these values."""
    given = yaml.safe_load(values.read_text())
    found = [str(e) for e in helm_python.lint(str(CHART), values=given)["errors"]]
    with helm_python.Chart.load(str(CHART)) as chart:
        files = chart.render(given, name="anabranch", namespace="anabranch")
    claim, shared = given.get("results", {}).get("existingClaim"), list[tuple[str, str, bool]]()
    for name, text in files.items():
        where = f"{values.name}: {name}"
        for document in documents(text) if name.endswith(".yaml") else ():
            found += mistakes(document, where)
            if document["kind"] in ("Deployment", "StatefulSet"):
                shared += [place for place in volumes(document) if place[0] == claim]
            if "executor.yaml" in document.get("data", {}):
                pod = yaml.safe_load(document["data"]["executor.yaml"])
                found += mistakes(pod, f"{where}: executor.yaml")
    wanted = [(claim, "/data/results", read_only) for read_only in (False, True)]
    if claim and sorted(shared) != wanted:
        found.append(f"{values.name}: driver and service mount results as {shared}, not {wanted}")
    return found


def volumes(document: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Claims that the first container mounts: name, path, and whether it only reads."""
    pod = document["spec"]["template"]["spec"]
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod.get("volumes", ())
        if "persistentVolumeClaim" in volume
    }
    return [
        (claims[mount["name"]], mount["mountPath"], mount.get("readOnly", False))
        for mount in pod["containers"][0]["volumeMounts"]
        if mount["name"] in claims
    ]


def main() -> int:
    """Print each mistake; 1 if there is one."""
    found = []
    if not helm_python.lint(str(CHART))["errors"]:
        found.append("values.schema.json: an object store is not required")
    for values in sorted((CHART / "ci").glob("*-values.yaml")):
        found += rendered(values)
    for manifest in sorted((FOLDER / "kubernetes").glob("*.yaml")):
        for document in documents(manifest.read_text()):
            found += mistakes(document, manifest.name)
    hadolint = Path(sys.executable).with_name("hadolint")
    read = subprocess.run([hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True)
    found += read.stdout.splitlines()
    sys.stdout.write("\n".join([*found, f"{len(found)} mistakes in deploy/", ""]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
