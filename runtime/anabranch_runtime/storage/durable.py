"""Durable storage of a state: the state directory alone, or an object store with the directory as
its cache.

All writes and deletions below a state directory go through :func:`durable`. Without an object store
a document is written to a temporary file in the directory and renamed. With an object store
(:func:`attach`) a document is put into it before it is renamed in the directory, packs (files with
segments of stores) are uploaded before a document that refers to them is committed, and missing
files are fetched. So the directory is never ahead of the object store, and a start makes their
contents equal (``adopt``). A document in the object store is replaced only if this process has read
or written its present version: if two drivers continue from the same manifest, only one commits.

Tasks and merges, too, get the storage of a state directory by its path, once per process.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from anabranch_runtime.errors import StateError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.storage.cache import Cached, evictions, fetch, missing
from anabranch_runtime.storage.depth import Verify
from anabranch_runtime.storage.documents import (
    Kind,
    at_once,
    read_document,
    sync_path,
    write_document,
)
from anabranch_runtime.storage.lease import StoreLease, taken
from anabranch_runtime.storage.leftovers import ListedFile, leftovers
from anabranch_runtime.storage.object_store import ChangedError, Remote, Version, open_remote
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.storage.verify import each_pack, verify_file, verify_footer, verify_packs

_LOG = structlog.get_logger("anabranch.runtime")

#: Name of the document with the address of the object store that a directory caches.
ORIGIN = Kind("origin", "store")
#: Name of the document with the pipeline's id (``claim``).
IDENTITY = Kind("identity", "pipeline")
_MANIFESTS, _PACKS, _LOGS = "manifest/", "segments/", "files/"
#: Folder of tasks' staged results, which the driver collects.
_STAGED = "staging/"
_FOLDERS = (_MANIFESTS, "journal/", "rulesets/", _LOGS)
_FILES = ("pipeline.json",)
#: Maximum number of leftover objects (``leftovers``) that are deleted at a time.
MOST = 1000
#: Number of documents that are read concurrently at a start.
READERS = 16
#: Quarantine folder for documents that the object store does not have.
ASIDE = "aside"


@dataclass(slots=True)
class Durable:
    """Storage in a state directory alone, and base class of storage with an object store.

    Attributes:
        fetched: bytes of packs fetched from the object store.
    """

    root: Path
    fetched: int = field(default=0, init=False)

    @property
    def uri(self) -> str | None:
        """Address of the object store; None if the directory is the only storage."""
        return None

    def held(self, *, standby: bool = False) -> AbstractContextManager[None]:
        """Hold a lock on the pipeline (lease), in addition to the directory's lock.

        ``standby``: whether this process waits for the end of another, or others for its end.
        """
        return nullcontext()

    def check(self) -> None:
        """Check that this process still holds the lease on the pipeline.

        Raises:
            StateError: ``store-taken``; or the object store can't be read.
        """

    def give_up(self) -> None:
        """Give up the lease, before an abrupt end of this process."""

    def adopt(self) -> None:
        """Replace the directory's documents by the object store's; called before the first read.

        Raises:
            StateError: ``store-missing``: the directory is a cache, and no object store was given.
        """
        if (self.root / "store.json").exists():
            where = read_document(self.root / "store.json", ORIGIN)
            raise StateError(
                "store-missing",
                f"{self.root} is a cache of the object store {where}",
                remedy="name that store with --object-store (ANABRANCH_OBJECT_STORE)",
            )

    def write(
        self, path: Path, kind: Kind, body: Any, ready: Callable[[], object] = at_once
    ) -> None:
        """Write or replace the document ``path``; return once it is durable. ``ready`` is called
        before the document can be read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_document(path, kind, body, ready)

    def keep(self, logs: Mapping[str, object], known: Mapping[str, object]) -> None:
        """Make the sources' logs (name -> content) durable, unless they are equal in ``known``."""

    def upload(self, pack: str) -> None:
        """Make a complete pack file durable, its content and its name.

        Raises:
            OSError: the disk does not accept it.
        """
        path = self.root / pack
        with path.open("rb") as file:
            os.fsync(file.fileno())
        sync_path(path.parent)

    def offer(self, name: str) -> None:
        """Make an immutable file of the directory available to other hosts, by its name."""

    def fetch(self, wanted: Segment) -> bool:
        """Fetch the missing pack of a segment; False if there is no other copy."""
        return False

    def bring(self, name: str, to: Path) -> bool:
        """Copy the file ``name`` of the object store to ``to``; return False if it is missing."""
        return False

    def touch(self, path: str) -> None:
        """Record a use of a pack file, for LRU eviction."""

    def evicted(self, packs: Iterable[str]) -> frozenset[str]:
        """Return the names among ``packs`` of packs that have been evicted from the directory."""
        return frozenset()

    def remove(self, paths: Iterable[Path]) -> None:
        """Delete documents of the state; return once they are deleted."""
        for path in paths:
            path.unlink(missing_ok=True)

    def discard(self, packs: Iterable[str]) -> None:
        """Delete pack files, now or in the background."""
        for pack in packs:
            (self.root / pack).unlink(missing_ok=True)

    def verify(self, segments: Iterable[Segment], depth: Verify, known: set[Segment]) -> None:
        """Check the packs of ``segments`` except ``known`` ones, as :func:`verify_packs`."""
        verify_packs(self.root, segments, depth, known)

    def read(self, path: str, parts: list[Segment]) -> None:
        """Compare every byte of the segments ``parts`` of a pack with its checksum.

        Raises:
            StateError: the pack is missing or damaged.
        """
        verify_packs(self.root, parts, Verify.FULL)

    def sweep(self, named: Collection[str]) -> None:
        """Delete all pack files except ``named``."""
        folder = self.root / "segments"
        for file in folder.iterdir() if folder.exists() else ():
            if f"{_PACKS}{file.name}" not in named:
                file.unlink()

    def tidy(self, named: Collection[str], batch: int) -> None:
        """Delete files of failed attempts and lost merges, now or in the background."""
        there = [(path, path.stat()) for path in (self.root / _PACKS).glob("*.pack")]
        found = [ListedFile(f"{_PACKS}{p.name}", s.st_size, s.st_mtime) for p, s in there]
        for name in leftovers(found, named, batch):
            (self.root / name).unlink(missing_ok=True)

    def withdraw(self, folder: str, names: Collection[str]) -> None:
        """Keep only ``names`` among the offered files of ``folder`` (:meth:`offer`)."""

    def trim(self, named: Collection[str]) -> None:
        """Evict packs after a commit, so that the directory is within its limit. The packs
        ``named`` may be evicted, as the object store has them."""


@dataclass(slots=True)
class Mirrored(Durable):
    """A state directory in front of an object store.

    Attributes:
        limit: maximum bytes of packs in the directory after a commit; None: no limit.
    """

    remote: Remote
    limit: int | None = None
    _lease: StoreLease | None = None
    #: The lease that this process tries to acquire, as last read.
    _seen: StoreLease | None = None
    #: Document -> its version when this process last read or wrote it in the object store.
    _versions: dict[str, Version] = field(default_factory=dict)
    #: Background thread that deletes packs and old documents, in the order of the calls.
    _deleter: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="discard")
    )
    _deleting: Future[None] | None = None
    #: Background thread that deletes objects of failed attempts and lost merges.
    _tidier: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="tidy")
    )
    _tidying: Future[None] | None = None
    #: Objects in the object store at the start -> size in bytes.
    _there: dict[str, int] = field(default_factory=dict)

    @property
    def uri(self) -> str | None:
        """Address of the object store."""
        return self.remote.uri

    @contextmanager
    def held(self, *, standby: bool = False) -> Iterator[None]:
        """Hold the lease on the object store. A standby calls this again and again.

        Raises:
            StateError: ``store-in-use``.
        """
        if self._seen is None:
            self._seen = StoreLease(self.remote, self.root, standby)
        self._lease = self._seen
        try:
            with self._lease.held():
                self._seen = None
                try:
                    yield
                finally:
                    if self._tidying is not None:
                        self._tidying.result()
        finally:
            self._settle()
            self._lease = None

    def check(self) -> None:
        """Check that this process still holds the lease on the object store."""
        if self._lease is not None:
            self._lease.check()

    def give_up(self) -> None:
        """Give up the lease on the object store."""
        if self._lease is not None:
            self._lease.give_up()

    def adopt(self) -> None:
        """Replace the directory's documents by the object store's. If the object store is empty and
        the directory was not a cache before, upload the directory's documents instead.

        Raises:
            StateError: ``store-lost``, ``foreign-store``: directory and object store do not belong
                together; nothing has been changed.
        """
        self._there, self._versions = self.remote.names(), {}
        used = any(n == "pipeline.json" or n.startswith(_MANIFESTS) for n in self._there)
        cache = (self.root / "store.json").exists()
        if used:
            self._same_pipeline()
            self._mirror()
        elif cache and self._local():
            raise StateError(
                "store-lost",
                f"{self.root} is a cache of an object store, {self.remote.where} is empty",
                remedy="correct the object store's address, or restore it from a backup; to begin "
                "again, use an empty state directory, empty results and another namespace",
            )
        else:
            self._give()
        if not cache:
            self.root.mkdir(parents=True, exist_ok=True)
            write_document(self.root / "store.json", ORIGIN, self.remote.where)

    def write(
        self, path: Path, kind: Kind, body: Any, ready: Callable[[], object] = at_once
    ) -> None:
        """Write a document to the object store, and then to ``path``.

        Raises:
            StateError: the object store can't be written to, or another process owns it now.
        """
        self._settle()
        self.check()
        ready()
        self._put(self._name(path), kind.spelled(body).encode())
        if path.parent.name == "manifest":
            reach(Point.COMMITTING)
        Durable.write(self, path, kind, body)

    def keep(self, logs: Mapping[str, object], known: Mapping[str, object]) -> None:
        """Upload the sources' logs that have grown."""
        for name in logs:
            if name.startswith(_LOGS) and logs[name] != known.get(name):
                self.remote.put(name, self.root / name)

    def upload(self, pack: str) -> None:
        """Upload a pack file to the object store."""
        self.remote.put(pack, self.root / pack)

    def offer(self, name: str) -> None:
        """Upload a file to the object store, unless it is there."""
        if self.remote.size(name) != (self.root / name).stat().st_size:
            self.remote.put(name, self.root / name)

    def fetch(self, wanted: Segment) -> bool:
        """Fetch a pack file from the object store.

        Raises:
            StateError: the pack is missing or damaged.
        """
        self.fetched += fetch(self.remote, self.root, wanted.path, (wanted,))
        return True

    def bring(self, name: str, to: Path) -> bool:
        """Fetch the object ``name`` to the file ``to``; return False if it does not exist.

        Raises:
            StateError: the store can't be read.
        """
        to.parent.mkdir(parents=True, exist_ok=True)
        partial = to.with_name(f"{to.name}.{uuid.uuid4().hex}.partial")
        try:
            self.remote.download(name, partial)
            partial.rename(to)
        except FileNotFoundError:
            return False
        finally:
            partial.unlink(missing_ok=True)
        return True

    def touch(self, path: str) -> None:
        """Set the pack's modification time, which stands for its last use, to now."""
        with suppress(FileNotFoundError):
            os.utime(self.root / path)

    def evicted(self, packs: Iterable[str]) -> frozenset[str]:
        """Return the packs that are missing in the directory."""
        return frozenset(p for p in packs if not (self.root / p).exists())

    def remove(self, paths: Iterable[Path]) -> None:
        """Delete documents from the object store, and then from the directory."""
        for path in paths:
            name = self._name(path)
            self.remote.delete(name)
            self._versions.pop(name, None)
            path.unlink(missing_ok=True)

    def discard(self, packs: Iterable[str]) -> None:
        """Delete packs from the directory, and in the background from the object store. Failures
        leave garbage until the next start."""
        names = sorted(packs)
        Durable.discard(self, names)
        for name in names:
            self._versions.pop(name, None)
        if names:
            self._deleting = self._deleter.submit(self._delete, names)

    def verify(self, segments: Iterable[Segment], depth: Verify, known: set[Segment]) -> None:
        """Check packs. A pack that the directory lacks, or that is damaged there, is checked in the
        object store; a pack that only the object store lacks is uploaded again."""

        def check(path: str, parts: list[Segment]) -> None:
            file = self.root / path
            try:
                verify_file(file, path, parts, depth)
            except (FileNotFoundError, StateError) as error:
                if isinstance(error, StateError) and error.code == "unknown-version":
                    raise
                file.unlink(missing_ok=True)
                self._verify_there(path, parts, depth)
            else:
                if self._there.get(path) != file.stat().st_size:
                    self.upload(path)

        each_pack(segments, check, known)

    def read(self, path: str, parts: list[Segment]) -> None:
        """Compare a pack with its checksums, in the object store if the directory lacks it.

        Raises:
            StateError: the pack is missing or damaged.
        """
        try:
            verify_file(self.root / path, path, parts, Verify.FULL)
        except FileNotFoundError:
            fetch(self.remote, self.root, path, parts, keep=False)

    def sweep(self, named: Collection[str]) -> None:
        """Delete all packs except ``named`` from the directory and the object store."""
        Durable.sweep(self, named)
        self.discard(n for n in self._there if n.startswith((_PACKS, _STAGED)) and n not in named)
        self._there = {}
        self.trim(named)

    def tidy(self, named: Collection[str], batch: int) -> None:
        """Delete leftover files from the directory, and in the background from the object store."""
        Durable.tidy(self, named, batch)
        if self._tidying is None or self._tidying.done():
            self._tidying = self._tidier.submit(self._tidy, named, batch)

    def withdraw(self, folder: str, names: Collection[str]) -> None:
        """Delete all objects in ``folder`` of the object store except ``names``."""
        self._delete([one.name for one in self.remote.listed(folder) if one.name not in names])

    def trim(self, named: Collection[str]) -> None:
        """Evict packs from the directory until it is within its limit."""
        if self.limit is None:
            return
        cached = []
        for name in named:
            with suppress(FileNotFoundError):
                found = (self.root / name).stat()
                cached.append(Cached(name, found.st_size, found.st_mtime_ns))
        for name in evictions(cached, self.limit):
            (self.root / name).unlink(missing_ok=True)

    def _verify_there(self, path: str, parts: list[Segment], depth: Verify) -> None:
        size = self._there.get(path)
        if size is None:
            raise missing(self.remote, path)
        if depth is Verify.FULL:
            # As packs are checked in parallel, the directory may exceed the limit a little until
            # the first commit.
            fetch(self.remote, self.root, path, parts, keep=self._has_room(size))
            return
        name = f"{path} of {self.remote.where}"
        verify_footer(name, size, lambda at, count: self.remote.part(path, at, count), parts)

    def _has_room(self, size: int) -> bool:
        if self.limit is None:
            return True
        folder = self.root / "segments"
        there = sum(p.stat().st_size for p in folder.glob("*.pack"))
        return there + size <= self.limit

    def _same_pipeline(self) -> None:
        path = self.root / "pipeline.json"
        try:
            here = read_document(path, IDENTITY) if path.exists() else None
            there = json.loads(self.remote.get("pipeline.json") or b"{}").get(IDENTITY.key)
        except (StateError, ValueError, AttributeError):
            # The directory's document is damaged and will be replaced; the object store's is
            # checked later.
            return
        if None not in (here, there) and here != there:
            raise StateError(
                "foreign-store",
                f"{self.root} belongs to another pipeline than {self.remote.where}",
                remedy="correct the state directory or the object store's address, or start with "
                "an empty state directory, which then becomes a cache of this store",
            )

    def _mirror(self) -> None:
        """Fetch documents that differ in the object store; quarantine documents that it lacks."""
        there = sorted(n for n in self._there if n in _FILES or n.startswith(_FOLDERS))
        with ThreadPoolExecutor(READERS) as readers:
            documents = list(readers.map(self.remote.read, there))
        for name, found in zip(there, documents, strict=True):
            path = self.root / name
            if found is None:
                continue
            content, self._versions[name] = found
            if not (path.exists() and path.read_bytes() == content):
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(path.name + ".partial")
                partial.write_bytes(content)
                partial.rename(path)
                sync_path(path.parent)
        for name in set(self._local()) - set(there):
            aside = self.root / ASIDE / name
            aside.parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).rename(aside)
            _LOG.warning("document quarantined: not in the object store", document=name)

    def _give(self) -> None:
        """Upload the directory, identity last, since a store without identity counts as empty."""
        names = self._local()
        packs = sorted((self.root / "segments").glob("*.pack"))
        for pack in packs:
            self.upload(f"{_PACKS}{pack.name}")
        for name in names:
            self._put(name, (self.root / name).read_bytes())
        self._there = self.remote.names() if names or packs else {}

    def _local(self) -> list[str]:
        """List the directory's documents: manifests after those they depend on, identity last."""
        found = [
            f"{folder}{path.name}"
            for folder in reversed(_FOLDERS)
            for path in sorted((self.root / folder).glob("*.json*"))
            if path.suffix in (".json", ".jsonl")
        ]
        return found + [name for name in _FILES if (self.root / name).exists()]

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _put(self, name: str, content: bytes) -> None:
        """Create a document in the object store, or replace the version that this process knows.

        Raises:
            StateError: ``store-taken``: another process has written it.
        """
        known = self._versions.get(name)
        try:
            self._versions[name] = self.remote.replace(name, content, known)
        except ChangedError:
            raise taken(self.remote, f"the process that has written {name}") from None

    def _tidy(self, named: Collection[str], batch: int) -> None:
        try:
            found = [one for folder in (_PACKS, _STAGED) for one in self.remote.listed(folder)]
            # If the lease is held even after the listing, no other owner has written these files.
            if self._lease is not None:
                self._lease.check()
        except StateError as error:
            _LOG.warning("object store not tidied", error=str(error))
            return
        left = leftovers(found, named, batch)[:MOST]
        self._delete(left)
        if left:
            _LOG.info("object store tidied", objects=len(left))

    def _delete(self, names: list[str]) -> None:
        for name in names:
            try:
                self.remote.delete(name)
            except StateError as error:
                _LOG.warning("not deleted from the object store", object=name, error=str(error))
                return

    def _settle(self) -> None:
        """Wait for background deletions of objects, to keep them in order with other writes."""
        if self._deleting is not None:
            self._deleting.result()
            self._deleting = None


_KEPT: dict[str, Durable] = {}


def attach(root: Path | str, uri: str | None, limit: int | None = None) -> Durable:
    """From now on, use the object store ``uri`` (None: no store) behind the state directory
    ``root`` in this process; return the storage.

    Raises:
        PipelineError: ``bad-object-store``.
    """
    known = _KEPT.get(str(root))
    if known is not None and known.uri == uri:
        if isinstance(known, Mirrored) and limit is not None:
            known.limit = limit
        return known
    path = Path(root)
    found = Durable(path) if uri is None else Mirrored(path, open_remote(uri), limit)
    _KEPT[str(root)] = found
    return found


def durable(root: Path | str) -> Durable:
    """Return the storage of the state directory ``root``."""
    found = _KEPT.get(str(root))
    return attach(root, None) if found is None else found
