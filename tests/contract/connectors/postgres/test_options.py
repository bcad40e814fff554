"""Tests of the options of PostgreSQL tables: values, refusals, addresses, secrets."""

from __future__ import annotations

import pytest

from anabranch_contract.connectors.check import check_source_access
from anabranch_contract.connectors.policy import AccessError, AccessPolicy
from anabranch_contract.connectors.postgres.options import (
    check_changes,
    postgres_options,
    session_settings,
)
from anabranch_contract.connectors.sources import OnLoss
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.changes import ChangeFormat

GIVEN = {"url": "postgresql://ann@localhost/shop", "table": "orders"}


def test_names_are_spelled_as_in_the_catalog() -> None:
    found = postgres_options({**GIVEN, "on_loss": "skip", "publication": "Pub", "slot": "s_1"})
    assert (found.schema, found.table, found.publication) == ("public", "orders", "pub")
    assert (found.slot, found.on_loss) == ("s_1", OnLoss.SKIP)
    quoted = postgres_options({**GIVEN, "table": '"My Shop"."Orders, old"'})
    assert (quoted.schema, quoted.table) == ("My Shop", "Orders, old")


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"table": "t"}, "url"),
        ({"url": GIVEN["url"]}, "table"),
        ({**GIVEN, "table": "a; DROP TABLE b"}, "table"),
        ({**GIVEN, "slot": "No Slot"}, "slot"),
        ({**GIVEN, "publication": "a b"}, "publication"),
        ({**GIVEN, "on_loss": "forget"}, "on_loss"),
        ({**GIVEN, "topics": "t"}, "topics"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], option: str) -> None:
    with pytest.raises(StreamError) as refused:
        postgres_options(options)
    assert refused.value.field == f"source.options.{option}"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, ""),
        (
            {"url": "postgresql://ann:${ANABRANCH_SOURCE_PW}@localhost:5433/shop?sslmode=require"},
            "",
        ),
        ({"url": "${ANABRANCH_SOURCE_URL}"}, ""),
        ({"password": "${ANABRANCH_SOURCE_PW}"}, ""),
        ({"url": "postgresql://ann@db.example/shop"}, "host-not-allowed"),
        ({"url": "postgresql://ann@db.lan/shop"}, ""),
        ({"url": "postgresql://ann:pw@localhost/shop"}, "secret-in-source"),
        ({"password": "pw"}, "secret-in-source"),
        ({"table": "${ANABRANCH_SOURCE_PW}"}, "misplaced-secret"),
        ({"url": "postgresql://${ANABRANCH_SOURCE_PW}@localhost/shop"}, "misplaced-secret"),
        ({"url": "postgresql:///shop?host=/tmp"}, "bad-address"),
        ({"url": "postgresql://localhost/shop?passfile=/etc/passwd"}, "bad-address"),
        ({"url": "postgresql://localhost,db.example/shop"}, "bad-address"),
        ({"url": "host=db.example dbname=shop"}, "bad-address"),
    ],
)
def test_addresses_and_secrets(options: dict[str, str], code: str) -> None:
    policy = AccessPolicy(hosts=("db.lan",))
    given = {**GIVEN, **options}
    if not code:
        check_source_access("postgres", None, given, policy, str)
        return
    with pytest.raises(AccessError) as refused:
        check_source_access("postgres", None, given, policy, str)
    assert refused.value.code == code
    assert refused.value.remedy


def test_arguments_of_a_connection() -> None:
    found = session_settings({**GIVEN, "password": "pw"}, 3)
    assert (found["password"], found["connect_timeout"]) == ("pw", 3)
    timed = session_settings({"url": f"{GIVEN['url']}?connect_timeout=9", "table": "t"}, 3)
    assert "connect_timeout" not in timed


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (None, "postgres-without-changes"),
        (ChangeFormat(operation=None, key=("id",)), "postgres-without-changes"),
        (ChangeFormat(key=("id",), null_deletes=True), "postgres-operations"),
        (ChangeFormat(inserts=("x",)), "postgres-operations"),
    ],
)
def test_forms_of_changes_that_are_refused(changes: ChangeFormat | None, code: str) -> None:
    with pytest.raises(StreamError) as refused:
        check_changes(changes)
    assert refused.value.code == code
