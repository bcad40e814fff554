"""Tests that a support bundle has what helps, and no secrets."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from anabranch_client.errors import UsageError
from anabranch_client.support.bundle import LOG_BYTES, QUESTIONS, write_bundle
from anabranch_client.support.redaction import Redactor, known_secrets
from tests.client.conftest import CUSTOMERS, JOIN, ORDERS
from tests.support.worlds.records import put
from tests.support.worlds.service import Service

TOKEN = f"anb_0123456789ab_{'ab12' * 16}"
#: Secrets that are planted everywhere; none may be in the zip.
SECRETS = {
    "redis": "Kq7-redis-pw",
    "jdbc": "Kq7-jdbc-pw",
    "sasl": "Kq7-sasl-pw",
    "sink": "Kq7-sink-pw",
    "header": "Kq7headertokenvalue",
    "description": "Kq7-description-pw",
    "variable": "Kq7-variable-pw",
    "file": "Kq7-file-pw",
    "key": "Kq7-access-key",
    "statement": "Kq7-statement-pw",
}


def plant(service: Service, home: Path) -> None:
    """Plant secrets in registrations, in logs, and in files."""
    for name, columns in (("orders", ORDERS), ("customers", CUSTOMERS)):
        body = {"name": name, "columns": dict(columns)}
        service.post("/v1/streams", body)
    service.post("/v1/queries", {"id": "pair", "sql": JOIN})
    record = json.loads(str(service.redis.hget(service.keys.streams, "orders")))
    record["description"] = f"see http://me:{SECRETS['description']}@wiki/orders"
    jaas = f'ScramLoginModule required username="u" password="{SECRETS["sasl"]}";'
    record["source"] |= {
        "format": "jdbc",
        "path": None,
        "options": {
            "url": f"jdbc:x://u:{SECRETS['jdbc']}@h/d?password={SECRETS['jdbc']}&ssl=true",
            "kafka.sasl.jaas.config": jaas,
            "fs.s3a.access.key": SECRETS["key"],
        },
    }
    put(service.redis, service.keys, "streams", "orders", json.dumps(record))
    query = json.loads(str(service.redis.hget(service.keys.queries, "pair")))
    query["sink"] |= {"format": "jdbc", "options": {"password": SECRETS["sink"]}}
    query["sql"] += f" WHERE password = '{SECRETS['statement']}'"
    put(service.redis, service.keys, "queries", "pair", json.dumps(query))
    (home / "logs").mkdir()
    (home / "redis").mkdir()
    (home / "admin.token").write_text(TOKEN + "\n")
    (home / "redis" / "password").write_text(SECRETS["file"])
    lines = [
        f"connecting to redis://:{SECRETS['redis']}@127.0.0.1:6379/0",
        f"Authorization: Bearer {SECRETS['header']}",
        json.dumps({"event": "failed", "options": {"sasl.password": SECRETS["sasl"]}}),
        json.dumps({"event": json.dumps({"db_password": SECRETS["jdbc"] + " with blanks"})}),
        f"variable {SECRETS['variable']}, file {SECRETS['file']}, token {TOKEN}",
        f"{{'secret_key': '{SECRETS['key']}'}}",
    ]
    (home / "logs" / "runtime.log").write_text("\n".join(lines) + "\n")
    (home / "logs" / "service.log").write_text("x" * (2 * LOG_BYTES) + "\nthe last line\n")


def contents(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_bundle_has_what_helps_and_no_secret(service: Service, tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "bundle.zip"
    home.mkdir()
    plant(service, home)
    environ = {
        "ANABRANCH_SINK_DB": SECRETS["variable"],
        "ANABRANCH_REDIS_URL": f"redis://:{SECRETS['redis']}@127.0.0.1:6379/0",
    }
    url = f"http://127.0.0.1:{service.settings.port}"
    missing = write_bundle(out, url, home, Redactor(known_secrets(environ, home)), token="")
    found = contents(out)
    everything = "\n".join((*found, *found.values()))
    leaked = [name for name, secret in SECRETS.items() if secret in everything]
    assert leaked == []
    assert TOKEN not in everything
    assert TOKEN.rpartition("_")[2] not in everything
    # No plan has been published, so these two requests are refused.
    assert set(missing) <= {"service/plan.json", "service/current-epoch.json", "service/state.json"}
    assert {f"service/{name}" for name in QUESTIONS} - set(missing) <= set(found)
    assert {"bundle.json", "machine.json", "logs/runtime.log"} <= set(found)
    streams: list[dict[str, Any]] = json.loads(found["service/streams.json"])["items"]
    assert {s["name"] for s in streams} == {"customers", "orders"}
    assert "anabranch_leader 1.0" in found["service/metrics.txt"]
    assert found["logs/service.log"] == "the last line\n"
    assert json.loads(found["bundle.json"])["versions"]["Python"]
    assert out.stat().st_mode & 0o777 == 0o600


def test_what_does_not_answer_is_left_out_and_named(tmp_path: Path) -> None:
    out = tmp_path / "bundle.zip"
    missing = write_bundle(out, "http://127.0.0.1:1", tmp_path, Redactor(), token="")
    assert set(missing) == {f"service/{name}" for name in (*QUESTIONS, "metrics.txt")}
    about = json.loads(contents(out)["bundle.json"])
    assert "ConnectError" in about["missing"]["service/ready.json"]


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "bundle.zip"
    out.write_text("mine")
    with pytest.raises(UsageError, match="File exists"):
        write_bundle(out, "http://127.0.0.1:1", tmp_path, Redactor(), token="")
    assert out.read_text() == "mine"
