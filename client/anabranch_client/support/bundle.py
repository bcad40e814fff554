"""The support bundle: a zip file with versions, settings, health, plans and logs of a pipeline.

Bundles are made when something does not work, so a part that can't be collected is listed in
``bundle.json`` and causes no error. A bundle contains no rows of streams or results.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from anabranch_client.doctor.checkup import check_up
from anabranch_client.doctor.findings import findings_document
from anabranch_client.doctor.requirements import installed
from anabranch_client.errors import UsageError
from anabranch_client.rest import token as access
from anabranch_client.support.redaction import Redactor

#: Version of a bundle's layout.
VERSION = 1
#: Packages whose versions are included.
PACKAGES = ("anabranch", "Python", "pyspark", "redis", "highspy", "sqlglot", "numpy", "pyarrow")
#: File in the bundle -> path of the service that returns its content.
QUESTIONS = {
    "health.json": "/healthz",
    "ready.json": "/readyz",
    "leader.json": "/v1/leader",
    "settings.json": "/v1/settings",
    "streams.json": "/v1/streams",
    "queries.json": "/v1/queries?limit=1000",
    "epochs.json": "/v1/epochs?limit=50",
    "current-epoch.json": "/v1/epochs/current",
    "plan.json": "/v1/plan",
    "state.json": "/v1/state",
    "series.json": "/v1/series?last=20",
}
#: Maximum bytes of each log in a bundle, taken from the log's end.
LOG_BYTES = 512 * 1024
#: Time limit of one answer of the service, in seconds.
_SECONDS = 30.0


@dataclass(slots=True)
class Bundle:
    """A support bundle that is being written.

    Attributes:
        missing: part -> reason why it is missing.
    """

    archive: zipfile.ZipFile
    redactor: Redactor
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, make: Callable[[], str]) -> None:
        """Add the text returned by ``make``; if it fails, record the part as missing."""
        try:
            text = make()
        except Exception as cause:  # noqa: BLE001 - collect the other parts
            self.missing[name] = self.redactor.text(f"{type(cause).__name__}: {cause}")
            return
        self.archive.writestr(name, self.redactor.text(text))

    def add_document(self, name: str, make: Callable[[], Any]) -> None:
        """Add a JSON document, with secrets masked; see :meth:`add`."""
        self.add(name, lambda: json.dumps(self.redactor.document(make()), indent=1))


def write_bundle(
    out: Path,
    url: str,
    folder: Path,
    redactor: Redactor,
    *,
    token: str | None = None,
    redis_url: str | None = None,
) -> dict[str, str]:
    """Write a bundle of the service at ``url`` and of the pipeline in ``folder``.

    Returns:
        Part -> why it is missing.

    Args:
        out: the file, readable by its owner only.
        token: token with read access; None: as for other commands.
        redis_url: Redis server to include in the checks of this machine; None: no server.

    Raises:
        UsageError: ``out`` can't be written, or exists already.
    """
    try:
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as cause:
        raise UsageError(
            f"{out} can't be written: {cause.strerror}", remedy="name a new file with --out"
        ) from cause
    with (
        os.fdopen(handle, "wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped,
    ):
        bundle = Bundle(zipped, redactor)
        headers = access.headers(token)
        with httpx.Client(base_url=url, headers=headers, timeout=_SECONDS) as http:
            for name, path in QUESTIONS.items():
                bundle.add_document(f"service/{name}", partial(_json, http, path))
            bundle.add("service/metrics.txt", lambda: answer(http, "/metrics").text)
        bundle.add_document(
            "machine.json",
            lambda: findings_document(list(check_up(folder, "127.0.0.1", 0, redis_url))),
        )
        for log in logs(folder):
            bundle.add(f"logs/{log.name}", partial(tail, log))
        zipped.writestr("bundle.json", json.dumps(_about(url, bundle), indent=1))
    return bundle.missing


def _about(url: str, bundle: Bundle) -> dict[str, Any]:
    return {
        "version": VERSION,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "service": bundle.redactor.text(url),
        "versions": installed(*PACKAGES),
        "missing": bundle.missing,
    }


def answer(http: httpx.Client, path: str) -> httpx.Response:
    """The service's answer to GET ``path``; of ``/readyz`` also the 503 that names the problem.

    Raises:
        httpx.HTTPError: no answer, or an error from another path.
    """
    response = http.get(path)
    if path != "/readyz":
        response.raise_for_status()
    return response


def _json(http: httpx.Client, path: str) -> Any:
    """The service's answer to a GET request, for a file of the support bundle."""
    return answer(http, path).json()


def logs(folder: Path) -> Iterator[Path]:
    """The log files of the pipeline in ``folder``."""
    yield from sorted((folder / "logs").glob("*.log"))


def tail(log: Path) -> str:
    """The newest :data:`LOG_BYTES` of a log, from the beginning of a line."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - LOG_BYTES, 0))
        found = file.read().decode(errors="replace")
    return found if size <= LOG_BYTES else found.partition("\n")[2]
