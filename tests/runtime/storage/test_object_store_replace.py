"""Tests of conditional writes of objects (only if unchanged), in a directory and over HTTP."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.storage.object_store import ChangedError, Version, open_remote
from tests.support.surroundings.s3 import s3_server, uri


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    pytest.importorskip("moto", reason="the extra dev has it")
    with s3_server() as address:
        yield address


@pytest.fixture(params=["s3", "file"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return tmp_path.as_uri()
    server: str = request.getfixturevalue("server")
    return uri(server, f"conditional/{request.node.name}")


def test_an_object_is_made_once_and_replaced_by_who_has_read_it(address: str) -> None:
    one, other = open_remote(address), open_remote(address)
    assert one.read("a/b.json") is None
    first = one.replace("a/b.json", b"1", None)
    with pytest.raises(ChangedError):
        other.replace("a/b.json", b"2", None)
    found = other.read("a/b.json")
    assert found == (b"1", first)
    second = other.replace("a/b.json", b"2", found[1])
    with pytest.raises(ChangedError):
        one.replace("a/b.json", b"3", first)
    assert one.read("a/b.json") == (b"2", second)
    with pytest.raises(ChangedError):
        one.replace("new", b"3", first)


def test_who_finds_what_it_would_write_has_written_it(address: str) -> None:
    store = open_remote(address)
    first = store.replace("x", b"1", None)
    assert store.replace("x", b"1", None) == first
    second = store.replace("x", b"2", first)
    assert store.replace("x", b"2", first) == second


def test_of_many_writers_one_succeeds_each_time(address: str) -> None:
    """Each writer adds its name to what it has read; none is lost."""
    rounds, writers = 5, 4

    def write(number: int) -> int:
        store, refused = open_remote(address), 0
        rng = random.Random(number)
        for turn in range(rounds):
            while True:
                found: tuple[bytes, Version] | None = store.read("log")
                content, known = (b"", None) if found is None else found
                try:
                    store.replace(
                        "log", content + f"{number}.{turn}.{rng.random()} ".encode(), known
                    )
                    break
                except ChangedError:
                    refused += 1
        return refused

    with ThreadPoolExecutor(writers) as pool:
        refused = sum(pool.map(write, range(writers)))
    found = open_remote(address).read("log")
    assert found is not None
    names = [".".join(word.split(".")[:2]) for word in found[0].decode().split()]
    assert sorted(names) == sorted(f"{n}.{t}" for n in range(writers) for t in range(rounds))
    assert refused > 0


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("hdfs://host:8020/state", "names no bucket or folder"),
        ("gs://bucket/x?endpoint_override=host", "no option endpoint_override"),
        ("s3://key:secret@bucket/x?bad=1", "no option bad, only region"),
    ],
)
def test_other_stores_and_options_are_refused(uri: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said) as caught:
        open_remote(uri)
    assert caught.value.code == "bad-object-store"
    assert "secret" not in str(caught.value)
