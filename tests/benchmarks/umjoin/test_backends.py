"""Common tests of all state backends (umjoin)."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_contract.protocol.merging import FANOUT
from anabranch_runtime.errors import KeyTypeError, StateError
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU, IndexKey
from benchmarks.umjoin.backends.interface import Backend, BackendKind, Bounds, TableSpec
from benchmarks.umjoin.backends.lsm import LsmBackend
from benchmarks.umjoin.backends.opening import open_backend
from tests.support.surroundings.backends import (
    DOMAINS,
    KINDS,
    PLENTY,
    Reference,
    array,
    opened,
    pairs,
    stored,
)
from tests.support.surroundings.disks import mount, small_disk
from tests.support.surroundings.folders import passing_folder

every_kind = pytest.mark.parametrize("kind", KINDS)
K = IndexKey(("k",), ("bigint",))
PLAIN = {"t": TableSpec(pa.schema([("k", pa.int64()), ("v", pa.int64())]), (K,))}
TIMED = {"t": TableSpec(pa.schema([("k", pa.int64()), ("v", pa.string())]), (K,), timed=True)}


def rows(keys: Sequence[int | None], first: int = 0) -> pa.RecordBatch:
    return stored(PLAIN["t"], {"k": list(keys), "v": [10 * (k or 0) for k in keys]}, first)


def keys_of(*values: int | None) -> list[pa.Array]:
    return [pa.array(values, pa.int64())]


@every_kind
def test_the_open_batch_is_found_and_lost_with_the_process(
    tmp_path: Path, kind: BackendKind
) -> None:
    with opened(tmp_path / "s", PLAIN, kind) as backend:
        table = backend.tables["t"]
        assert backend.batch == -1
        table.insert(rows([1, 2, None, 2]))
        assert sorted(r["v"] for _, r in pairs(table, K, keys_of(2, 3, None))) == [20, 20]
        backend.commit(4)
        table.insert(rows([2], first=9))
        assert len(pairs(table, K, keys_of(2))) == 3
    with opened(tmp_path / "s", PLAIN, kind) as backend:
        assert backend.batch == 4
        found = pairs(backend.tables["t"], K, keys_of(2))
        assert sorted((p, r[SIGMA]) for p, r in found) == [(0, 1), (0, 3)]
        backend.verify()


@every_kind
def test_what_arrived_before_and_event_times_bound_what_is_found(
    tmp_path: Path, kind: BackendKind
) -> None:
    with opened(tmp_path / "s", TIMED, kind) as backend:
        table = backend.tables["t"]
        for batch in range(3):
            values = {"k": [7] * 4, "v": ["a", None, "", "b"]}
            taus = [batch * 100 + i for i in range(4)]
            table.insert(stored(TIMED["t"], values, batch << OFFSET_BITS, taus))
            if batch < 2:
                backend.commit(batch)
        last = 2 << OFFSET_BITS
        before = Bounds(before=np.array([last + 1, 0], np.int64))
        assert len(pairs(table, K, keys_of(7, 7), before)) == 9
        between = Bounds(low=np.array([2]), high=np.array([101]))
        found = pairs(table, K, keys_of(7), between)
        assert sorted(r[TAU] for _, r in found) == [2, 3, 100, 101]
        assert len(pairs(table, K, keys_of(7), Bounds(low=np.array([201])))) == 3
        assert len(pairs(table, K, keys_of(7), Bounds(high=np.array([-1])))) == 0


@every_kind
def test_pairs_come_in_pieces_where_a_key_is_frequent(tmp_path: Path, kind: BackendKind) -> None:
    with opened(tmp_path / "s", PLAIN, kind) as backend:
        table = backend.tables["t"]
        for batch in range(3):
            table.insert(rows([1] * 1000 + list(range(2, 50)), first=batch << OFFSET_BITS))
            if batch < 2:
                backend.commit(batch)
        probes = [pa.array([1, 5] * 50)]
        parts = list(table.probe(K, probes, most=6000))
        assert sum(len(p.positions) for p in parts) == 50 * 3000 + 50 * 3
        assert max(len(p.positions) for p in parts) <= 9000
        assert len(parts) > 10


@every_kind
@pytest.mark.parametrize("domain", range(len(DOMAINS)))
def test_keys_meet_by_value_whatever_their_width(
    tmp_path: Path, kind: BackendKind, domain: int
) -> None:
    types, key_type, values = DOMAINS[domain]
    index = IndexKey(("a", "n"), (key_type, "bigint"))
    alone = IndexKey(("a",), (key_type,))
    for number, held in enumerate(types):
        spec = TableSpec(pa.schema([("a", held), ("n", pa.int32())]), (index, alone))
        columns = {"a": [*values, None], "n": [*range(len(values)), 0]}
        with opened(tmp_path / str(number), {"t": spec}, kind) as backend:
            backend.tables["t"].insert(stored(spec, columns, 0))
            backend.commit(0)
            backend.tables["t"].insert(stored(spec, columns, 1 << OFFSET_BITS))
            reference = Reference()
            for sigma in (0, 1 << OFFSET_BITS):
                for i, value in enumerate(columns["a"]):
                    reference.rows.append({"a": value, "n": columns["n"][i], SIGMA: sigma + i})
            for asked in types:
                probes = [array(columns["a"], asked), pa.array(columns["n"], pa.int64())]
                for key, many in ((index, 2), (alone, 1)):
                    found = pairs(backend.tables["t"], key, probes[:many])
                    wanted = reference.probe(
                        key.columns, [columns["a"], columns["n"]][:many], Bounds(), None
                    )
                    assert {(p, r[SIGMA]) for p, r in found} == wanted
                    assert len(found) == len(wanted)


def _tables(draw: st.DrawFn) -> dict[str, TableSpec]:
    first = draw(st.sampled_from(DOMAINS))
    second = draw(st.sampled_from(DOMAINS))
    fields = [
        ("a", draw(st.sampled_from(first[0]))),
        ("b", draw(st.sampled_from(second[0]))),
        ("s", pa.string()),
    ]
    both = IndexKey(("a", "b"), (first[1], second[1]))
    only = IndexKey(("b",), (second[1],))
    return {"t": TableSpec(pa.schema(fields), (both, only), timed=draw(st.booleans()))}


@every_kind
@given(data=st.data())
@settings(max_examples=12)
def test_random_histories_are_answered_as_by_a_list(kind: BackendKind, data: st.DataObject) -> None:
    tables = data.draw(st.composite(_tables)())
    spec = tables["t"]
    values = {
        f.name: next((d[2] for d in DOMAINS if f.type in d[0] and f.name != "s"), ["x", "", "yy"])
        for f in spec.columns
    }
    reference = Reference()
    batch, counter, below, durable_below = 0, 0, None, None
    with passing_folder() as folder:
        backend = opened(folder / "s", tables, kind)
        try:
            for _ in range(data.draw(st.integers(1, 25))):
                table = backend.tables["t"]
                action = data.draw(
                    st.sampled_from(["insert", "insert", "commit", "probe", "expire", "reopen"])
                )
                if action == "insert":
                    count = data.draw(st.integers(0, 12))
                    some = {
                        name: [
                            data.draw(st.one_of(st.none(), st.sampled_from(v)))
                            for _ in range(count)
                        ]
                        for name, v in values.items()
                    }
                    taus = [batch * 10 + data.draw(st.integers(-15, 15)) for _ in range(count)]
                    first = (batch << OFFSET_BITS) + counter
                    counter += count
                    added = stored(spec, some, first, taus)
                    table.insert(added)
                    reference.rows += added.to_pylist()
                elif action == "commit":
                    backend.commit(batch)
                    reference.commit()
                    durable_below = below
                    batch, counter = batch + 1, 0
                elif action == "reopen":
                    backend.close()
                    backend = opened(folder / "s", tables, kind)
                    reference.reopen()
                    below, counter = durable_below, 0
                    assert backend.batch == batch - 1
                    backend.verify()
                elif action == "expire" and spec.timed:
                    below = max(below or -100, batch * 10 - data.draw(st.integers(0, 60)))
                    table.expire(below)
                else:
                    _compare(data, table, reference, values, below)
        finally:
            backend.close()


def _compare(
    data: st.DataObject,
    table: Any,
    reference: Reference,
    values: dict[str, list[Any]],
    below: int | None,
) -> None:
    spec = table.spec
    index = data.draw(st.sampled_from(spec.indexes))
    count = data.draw(st.integers(0, 10))
    asked = {
        c: [data.draw(st.one_of(st.none(), st.sampled_from(values[c]))) for _ in range(count)]
        for c in index.columns
    }
    now = [r[SIGMA] for r in reference.rows] or [0]
    bounds = Bounds(
        before=np.array([data.draw(st.sampled_from(now)) for _ in range(count)], np.int64)
        if data.draw(st.booleans())
        else None,
        low=np.array([data.draw(st.integers(-20, 60)) for _ in range(count)], np.int64)
        if spec.timed and data.draw(st.booleans())
        else None,
        high=np.array([data.draw(st.integers(-20, 90)) for _ in range(count)], np.int64)
        if spec.timed and data.draw(st.booleans())
        else None,
    )
    probes = [array(asked[c], spec.columns.field(c).type) for c in index.columns]
    found = pairs(table, index, probes, bounds, below, most=data.draw(st.sampled_from([1, 7, 999])))
    by_sigma = {r[SIGMA]: r for r in reference.rows}
    for _, row in found:
        assert repr(row) == repr(by_sigma[row[SIGMA]])
    wanted = reference.probe(index.columns, [asked[c] for c in index.columns], bounds, below)
    assert {(p, r[SIGMA]) for p, r in found} == wanted
    assert len(found) == len(wanted)


@every_kind
def test_many_batches_with_expiry_keep_what_is_needed_and_drop_the_rest(
    tmp_path: Path, kind: BackendKind
) -> None:
    """Run long enough for merges of two levels, and for most stored rows to expire."""
    batches, window = 3 * FANOUT**2, 40
    draw = np.random.default_rng(5)
    reference = Reference()
    with opened(tmp_path / "s", TIMED, kind) as backend:
        table = backend.tables["t"]
        for batch in range(batches):
            values: dict[str, Any] = {
                "k": draw.integers(0, 20, 50).tolist(),
                "v": [str(batch)] * 50,
            }
            taus = batch * 10 + draw.integers(0, 10, 50)
            added = stored(TIMED["t"], values, batch << OFFSET_BITS, taus)
            table.insert(added)
            reference.rows += added.to_pylist()
            table.expire((batch - window) * 10)
            backend.commit(batch)
        below = (batches - 1 - window) * 10
        reference.rows = [r for r in reference.rows if r[TAU] >= below]
        found = pairs(table, K, keys_of(*range(20)), below=below)
        assert sorted(r[SIGMA] for _, r in found) == sorted(r[SIGMA] for r in reference.rows)
        told = backend.statistics()
        assert len(reference.rows) <= told.tables["t"].rows < 2.5 * 50 * window
        assert told.disk > 0
        backend.verify()
    with opened(tmp_path / "s", TIMED, kind) as backend:
        found = pairs(backend.tables["t"], K, keys_of(*range(20)), below=below)
        assert len(found) == len(reference.rows)


@every_kind
def test_a_second_process_is_refused(tmp_path: Path, kind: BackendKind) -> None:
    with opened(tmp_path / "s", PLAIN, kind):
        code = (
            "import sys, pathlib; from tests.benchmarks.umjoin.test_backends import *\n"
            "try: open_backend(pathlib.Path(sys.argv[1]), PLAIN, PLENTY, sys.argv[2])\n"
            "except StateError as error: print(error.code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "s"), kind],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["state-in-use"], done.stderr
    opened(tmp_path / "s", PLAIN, kind).close()


@every_kind
def test_a_folder_is_only_opened_as_what_it_was_made(tmp_path: Path, kind: BackendKind) -> None:
    opened(tmp_path / "s", PLAIN, kind).close()
    other = next(k for k in KINDS if k is not kind)
    for tables, opening, code in ((PLAIN, other, "other-backend"), (TIMED, kind, "other-tables")):
        with pytest.raises(StateError) as error:
            opened(tmp_path / "s", tables, opening)
        assert error.value.code == code
        assert error.value.remedy
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("no state")
    with pytest.raises(StateError) as error:
        opened(tmp_path / "mine", PLAIN, kind)
    assert error.value.code == "other-backend"


@every_kind
def test_a_format_of_a_later_release_is_refused(tmp_path: Path, kind: BackendKind) -> None:
    with opened(tmp_path / "s", PLAIN, kind) as backend:
        backend.tables["t"].insert(rows([1]))
        backend.commit(0)
    names = {"lsm": ["manifest.json"], "memory": ["log.json"], "rocksdb": []}[kind]
    for name in [*names, "backend.json"]:
        path = tmp_path / "s" / name
        text = path.read_text()
        path.write_text(json.dumps({**json.loads(text), "version": 99}))
        with pytest.raises(StateError) as error:
            opened(tmp_path / "s", PLAIN, kind)
        assert error.value.code == "unknown-version"
        path.write_text(text)
    opened(tmp_path / "s", PLAIN, kind).close()


@every_kind
def test_bad_use_is_refused_with_nothing_changed(tmp_path: Path, kind: BackendKind) -> None:
    with opened(tmp_path / "s", PLAIN, kind) as backend:
        table = backend.tables["t"]
        table.insert(rows([1]))
        backend.commit(3)
        wrong = pa.RecordBatch.from_pydict({"k": ["a"], "v": [1], SIGMA: [1]})
        for bad in (wrong, wrong.select(["v", SIGMA])):
            with pytest.raises(StateError, match="column 'k'") as error:
                table.insert(bad)
            assert error.value.code == "bad-rows"
        with pytest.raises(StateError) as error:
            list(table.probe(IndexKey(("v",), ("bigint",)), keys_of(1)))
        assert error.value.code == "no-index"
        with pytest.raises(KeyTypeError):
            list(table.probe(K, [pa.array(["a"])]))
        with pytest.raises(StateError) as error:
            backend.commit(3)
        assert error.value.code == "batch-order"
        assert len(pairs(table, K, keys_of(1))) == 1
        table.insert(rows([]))
        assert pairs(table, K, keys_of()) == []
        backend.commit(4)


def test_opening_says_what_it_can_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, limit, code in (("btree", PLENTY, "unknown-backend"), ("lsm", 5, "bad-memory-limit")):
        with pytest.raises(StateError) as error:
            open_backend(tmp_path / "s", PLAIN, limit, kind)
        assert error.value.code == code
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "rocksdict":
            raise ModuleNotFoundError("No module named 'rocksdict'", name="rocksdict")
        return real(name, *rest)

    for name in [n for n in sys.modules if n.endswith("backends.rocks")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StateError, match=r"anabranch\[bench\]") as error:
        open_backend(tmp_path / "s", PLAIN, PLENTY, "rocksdb")
    assert error.value.code == "missing-extra"
    with pytest.raises(StateError, match="reserved"):
        TableSpec(pa.schema([(SIGMA, pa.int64())]), ())


def _much(batch: int, count: int = 20_000) -> pa.RecordBatch:
    draw = np.random.default_rng(batch)
    columns = {"k": draw.integers(0, 1 << 40, count), "v": draw.integers(0, 9, count)}
    return stored(PLAIN["t"], columns, batch << OFFSET_BITS)


def _fill(backend: Backend, batches: int, count: int) -> None:
    for batch in range(batches):
        backend.tables["t"].insert(_much(batch, count))
        backend.commit(batch)


def test_memory_is_refused_where_it_would_not_do(tmp_path: Path) -> None:
    limit = 4 << 20
    with opened(tmp_path / "m", PLAIN, BackendKind.MEMORY, limit) as backend:
        with pytest.raises(StateError) as error:
            _fill(backend, 100, 20_000)
        assert error.value.code == "memory-limit"
        assert backend.batch > 0
        told = backend.statistics()
        assert told.memory is not None
        assert told.memory <= limit
        assert len(pairs(backend.tables["t"], K, [_much(0).column("k")[:5]])) == 5


def test_an_lsm_tree_holds_more_than_its_memory(tmp_path: Path) -> None:
    limit, batches = 2 << 20, 60
    with opened(tmp_path / "s", PLAIN, BackendKind.LSM, limit) as backend:
        table = backend.tables["t"]
        for batch in range(batches):
            for part in range(3):
                table.insert(_much(3 * batch + part, 5_000))
                told = backend.statistics()
                assert told.memory is not None
                assert told.memory <= limit // 4
            backend.commit(batch)
        told = backend.statistics()
        assert told.bytes > 10 * limit
        probes = [_much(n, 5_000).column("k")[7] for n in range(3 * batches)]
        found = pairs(table, K, [pa.array([p.as_py() for p in probes])])
        assert len(found) == 3 * batches
        assert told.write_amplification is not None
        assert told.write_amplification < 6
        assert told.space_amplification is not None
        assert told.space_amplification < 1.3


def test_merges_go_on_beside_the_operator(tmp_path: Path) -> None:
    with LsmBackend(tmp_path / "s", PLAIN, PLENTY) as backend:
        for batch in range(10 * FANOUT):
            backend.tables["t"].insert(_much(batch, 1000))
            backend.commit(batch)
            assert len(pairs(backend.tables["t"], K, [_much(0).column("k")[:9]])) == (9)
            # Files may appear and disappear while they are counted.
            assert backend.statistics().disk > 0
        assert backend.statistics().merged
    with opened(tmp_path / "s", PLAIN, BackendKind.LSM) as backend:
        assert backend.statistics().tables["t"].rows == 10 * FANOUT * 1000


@pytest.mark.parametrize(
    "kind",
    # RocksDB continues to write for a while, and closing waits for it.
    [k if k != BackendKind.ROCKSDB else pytest.param(k, marks=pytest.mark.slow) for k in KINDS],
)
def test_a_full_disk_is_named_and_nothing_committed_is_lost(
    tmp_path: Path, kind: BackendKind
) -> None:
    with small_disk(tmp_path / "disk", "24m") as disk:
        backend = opened(disk / "s", PLAIN, kind)
        with pytest.raises(StateError) as error:
            _fill(backend, 400, 10_000)
        assert error.value.code == "disk-full"
        assert str(disk) in error.value.message
        known = backend.batch
        backend.close()
        mount(disk, "remount,size=200m")
        with opened(disk / "s", PLAIN, kind) as backend:
            assert backend.batch in (known - 1, known, known + 1)
            batch = backend.batch
            backend.verify()
            assert backend.statistics().tables["t"].rows == 10_000 * (backend.batch + 1)
            backend.tables["t"].insert(_much(batch + 1, 10_000))
            backend.commit(batch + 1)


@every_kind
def test_a_folder_that_must_not_be_written_is_named(tmp_path: Path, kind: BackendKind) -> None:
    with small_disk(tmp_path / "disk", "200m") as disk:
        opened(disk / "s", PLAIN, kind).close()
        assert mount(disk, "remount,ro")
        with pytest.raises(StateError) as error:
            opened(disk / "s", PLAIN, kind)
        assert error.value.code == "not-writable"
        assert str(disk) in error.value.message
