"""Tests of access tokens on the command line: their sources, and that they never appear in
arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.errors import ApiError, UsageError
from anabranch_client.processes.allowed import Permissions
from anabranch_client.rest.api import AsyncClient, Client
from anabranch_client.rest.token import given_token
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.rest.access import Role
from anabranch_service.settings import ServiceSettings
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.access import Guarded, guarded

if TYPE_CHECKING:
    from typer.testing import Result


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with redis_url() as url:
        settings = ServiceSettings().changed(redis_url=url, namespace="cli", poll_seconds=0.005)
        with guarded(settings, tmp_path_factory.mktemp("access")) as found:
            yield found


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANABRANCH_TOKEN", raising=False)
    monkeypatch.delenv("ANABRANCH_TOKEN_FILE", raising=False)


def run(locked: Guarded, *arguments: str, token: str | None = None, **more: str) -> Result:
    environment = {"ANABRANCH_URL": locked.url, **more}
    if token is not None:
        environment["ANABRANCH_TOKEN"] = token
    return CliRunner().invoke(app, arguments, env=environment)


def test_a_token_from_the_environment_or_a_file(locked: Guarded, tmp_path: Path) -> None:
    assert run(locked, "stream", "list").exit_code == 1
    viewer = locked.tokens[Role.VIEWER]
    assert run(locked, "stream", "list", token=viewer).exit_code == 0
    file = tmp_path / "token"
    file.write_text(f"{viewer}\n")
    assert run(locked, "--token-file", str(file), "stream", "list").exit_code == 0
    assert run(locked, "stream", "list", ANABRANCH_TOKEN_FILE=str(file)).exit_code == 0
    # The command line option has precedence over the environment.
    file.write_text(locked.tokens[Role.WORKER])
    refused = run(locked, "--token-file", str(file), "stream", "list", token=viewer)
    assert refused.exit_code == 1
    assert "the role worker may not do this" in refused.output


def test_no_option_takes_a_token() -> None:
    """All users of the machine can see the arguments of all processes."""
    assert CliRunner().invoke(app, ["--token", "anb_x", "stream", "list"]).exit_code == 2
    help_text = CliRunner().invoke(app, ["--help"]).output
    assert "--token-file" in help_text
    assert "--token " not in help_text


@pytest.mark.parametrize("content", ["", " \n", "two words", "a\nb", "\x00", "ü"])
def test_what_is_no_token_is_never_sent(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(UsageError, match="holds no token"):
        given_token(file)
    with pytest.raises(UsageError, match="can't be read"):
        given_token(tmp_path / "missing")


def test_tokens_are_created_listed_and_revoked(locked: Guarded, tmp_path: Path) -> None:
    admin = locked.tokens[Role.ADMIN]
    made = run(locked, "token", "create", "ci", "--role", "editor", "--ttl", "1 day", token=admin)
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip().splitlines()[-1]
    assert secret.startswith("anb_")
    assert run(locked, "settings", "show", token=secret).exit_code == 0

    file = tmp_path / "worker.token"
    arguments = ("token", "create", "feed", "--role", "worker", "--out", str(file))
    written = run(locked, *arguments, token=admin)
    assert written.exit_code == 0
    text = file.read_text().strip()
    assert file.stat().st_mode & 0o777 == 0o600
    assert text not in written.output
    assert run(locked, *arguments, token=admin).exit_code == 2
    refused = tmp_path / "refused.token"
    arguments = ("token", "create", "x", "--role", "admin", "--out", str(refused))
    assert run(locked, *arguments, token=secret).exit_code == 1
    assert not refused.exists()

    listed = run(locked, "token", "list", token=admin)
    ident = secret.split("_")[1]
    assert ident in listed.output
    assert secret not in listed.output
    assert run(locked, "token", "revoke", ident, token=admin).exit_code == 0
    assert run(locked, "stream", "list", token=secret).exit_code == 1
    everything = json.loads(run(locked, "token", "list", "--json", token=admin).output)
    assert next(t for t in everything if t["id"] == ident)["revoked_at"]


def test_the_audit_log_is_shown(locked: Guarded) -> None:
    admin = locked.tokens[Role.ADMIN]
    run(locked, "stream", "rm", "\x1b[2Jnobody", "--yes", token=locked.tokens[Role.VIEWER])
    found = run(locked, "audit", "--kind", "refusal", token=admin)
    assert found.exit_code == 0
    assert "\x1b[2J" not in found.output
    entries = json.loads(run(locked, "audit", "--kind", "refusal", "--json", token=admin).output)
    assert entries[0]["role"] == "viewer"
    assert entries[0]["target"].endswith("%1B%5B2Jnobody")
    assert run(locked, "audit", token=locked.tokens[Role.EDITOR]).exit_code == 1


def test_the_client_says_who_it_is(locked: Guarded) -> None:
    with Client(locked.url, token=locked.tokens[Role.EDITOR]) as client:
        assert client.whoami().role == "editor"
        with pytest.raises(ApiError, match="may not do this"):
            client.create_token("x", "admin")
    with Client(locked.url, token="") as client, pytest.raises(ApiError, match="no token"):
        client.streams()


async def _who(url: str, token: str) -> str:
    async with AsyncClient(url, token=token) as client:
        made = await client.create_token("async", "viewer")
        assert any(t.id == made.id for t in await client.tokens())
        assert (await client.revoke_token(made.id)).revoked_at
        assert (await client.audit())[0].method == "DELETE"
        return (await client.whoami()).role


def test_the_asynchronous_client_too(locked: Guarded) -> None:
    import asyncio

    assert asyncio.run(_who(locked.url, locked.tokens[Role.ADMIN])) == "admin"


@pytest.mark.parametrize("name", ["state", "redis", "logs", "admin.token", "service.port"])
@pytest.mark.parametrize("suffix", ["", "/below"])
def test_what_up_keeps_in_its_folder_is_reserved(tmp_path: Path, name: str, suffix: str) -> None:
    flags = Permissions((tmp_path,)).arguments(tmp_path, tmp_path / "results")
    reserved = tuple(f.partition("=")[2] for f in flags if f.startswith("--reserve-path="))
    policy = AccessPolicy(paths=(str(tmp_path),), reserved=reserved)
    assert not policy.permits_path(f"{tmp_path}/{name}{suffix}")
    for file in ("up.lock", "up.json", "up.tmp"):
        assert not policy.permits_path(f"{tmp_path}/{file}{suffix}")
    assert policy.permits_path(f"{tmp_path}/mine")
