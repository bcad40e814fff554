"""Objects that change only as they were read, in a directory and over HTTP."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.storage.conditional import ChangedError, Version, open_conditional
from tests.support.surroundings.s3 import s3_server, uri

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    one, other = open_conditional(address), open_conditional(address)
    assert one.read("a/b.json") is None
    first = one.put("a/b.json", b"1", None)
    with pytest.raises(ChangedError):
        other.put("a/b.json", b"2", None)
    found = other.read("a/b.json")
    assert found == (b"1", first)
    second = other.put("a/b.json", b"2", found[1])
    with pytest.raises(ChangedError):
        one.put("a/b.json", b"3", first)
    assert one.read("a/b.json") == (b"2", second)
    with pytest.raises(ChangedError):
        one.put("new", b"3", first)


def test_who_finds_what_it_would_write_has_written_it(address: str) -> None:
    store = open_conditional(address)
    first = store.put("x", b"1", None)
    assert store.put("x", b"1", None) == first
    second = store.put("x", b"2", first)
    assert store.put("x", b"2", first) == second


def test_of_many_writers_one_succeeds_each_time(address: str) -> None:
    """Each adds its name to what it has read; none is lost."""
    rounds, writers = 5, 4

    def write(number: int) -> int:
        store, refused = open_conditional(address), 0
        rng = random.Random(number)
        for turn in range(rounds):
            while True:
                found: tuple[bytes, Version] | None = store.read("log")
                content, known = (b"", None) if found is None else found
                try:
                    store.put("log", content + f"{number}.{turn}.{rng.random()} ".encode(), known)
                    break
                except ChangedError:
                    refused += 1
        return refused

    with ThreadPoolExecutor(writers) as pool:
        refused = sum(pool.map(write, range(writers)))
    found = open_conditional(address).read("log")
    assert found is not None
    names = [".".join(word.split(".")[:2]) for word in found[0].decode().split()]
    assert sorted(names) == sorted(f"{n}.{t}" for n in range(writers) for t in range(rounds))
    assert refused > 0


def test_a_store_without_conditional_writes_is_refused() -> None:
    with pytest.raises(PipelineError, match="can't be replaced only as it was read") as caught:
        open_conditional("hdfs://host:8020/state")
    assert caught.value.code == "no-conditional-writes"
