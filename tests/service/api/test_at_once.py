"""Tests of simultaneous REST requests: some sequential order of them must explain answers and
registry.

Each round draws two or three requests, sends them at once to the services of one pipeline, and then
one after the other in every order, with other names. One of the orders must have given the same
answers and left the same streams, queries and functions. Names begin with the letter of the round.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, count, permutations
from pathlib import Path
from string import ascii_letters
from threading import Barrier
from typing import Any

import httpx
import pytest

from anabranch_service.settings import ServiceSettings
from tests.support.worlds.access import bearer, guarded
from tests.support.worlds.service import Service, serving

MODULE = "def f(x):\n    return x\n\ndef g(x):\n    return -x\n"


@dataclass(frozen=True)
class Request:
    """A request; ``@`` in it is the prefix of the round's names.

    Attributes:
        version: query or stream whose version before the round is sent as If-Match; "": none.
        key: idempotency key.
    """

    method: str
    path: str
    body: dict[str, Any] | None = None
    version: str = ""
    key: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path} {json.dumps(self.body)} {self.version} {self.key}"


def _stream(name: str, **more: Any) -> dict[str, Any]:
    columns = {"k": "bigint", "v": "int", "w": "string", "ts": "timestamp"}
    return {"name": name, "columns": columns, "source": _queue(name), **more}


def _queue(name: str) -> dict[str, Any]:
    return {"format": "redis-stream", "options": {"keys": f"rows:{name}"}}


JOIN = "SELECT a.k, a.v FROM @a a JOIN @b b ON a.k = b.k"
OF_B = "SELECT b.k, b.w FROM @b b"
ALL = "SELECT * FROM @a a JOIN @b b ON a.k = b.k WHERE a.v > 1"
GROUPS = "SELECT a.v, count(*) AS n FROM @a a GROUP BY a.v"
CALLS = "SELECT b.k, @f(b.k) AS y FROM @b b"
SINK = {"format": "redis", "stream": "out:@"}
F = {"signature": "@f(x BIGINT) RETURNS BIGINT", "module": "places", "attribute": "f"}

#: Name -> requests that set it up, sent before a round with requests that contain the name:
#: streams, a table, a function, a query, a view, a paused and an ended query.
SETUP = {
    "a": [Request("POST", "/v1/streams", _stream("@a", event_time="ts"))],
    "b": [Request("POST", "/v1/streams", _stream("@b", event_time="ts"))],
    "t": [Request("POST", "/v1/streams", _stream("@t", kind="table", key=["k"]))],
    "f": [Request("POST", "/v1/functions", F)],
    "q": [Request("POST", "/v1/queries", {"name": "@q", "sql": JOIN})],
    "g": [Request("POST", "/v1/queries", {"name": "@g", "sql": GROUPS})],
    "p": [
        Request("POST", "/v1/queries", {"name": "@p", "sql": OF_B}),
        Request("POST", "/v1/queries/@p:pause"),
    ],
    "d": [
        Request("POST", "/v1/queries", {"name": "@d", "sql": OF_B}),
        Request("DELETE", "/v1/queries/@d"),
    ],
}
_NAME = re.compile(r"@([a-z])\b")

#: Requests by kind, so that drawn pairs may conflict.
REQUESTS = {
    "query": [
        Request("PUT", "/v1/queries/@q", {"sql": JOIN, "priority": 2}),
        Request("PUT", "/v1/queries/@q", {"sql": OF_B}, "queries/@q"),
        Request("PUT", "/v1/queries/@q", {"sql": OF_B, "title": "x"}),
        Request("PATCH", "/v1/queries/@q", {"owner": "me"}),
        Request("PATCH", "/v1/queries/@q", {"tags": ["t"]}, "queries/@q"),
        Request("DELETE", "/v1/queries/@q"),
        Request("DELETE", "/v1/queries/@q", None, "queries/@q"),
        Request("POST", "/v1/queries/@q:pause"),
        Request("POST", "/v1/queries/@q:resume"),
        Request("POST", "/v1/queries", {"name": "@q", "sql": OF_B}),
        Request("POST", "/v1/queries", {"name": "@r", "sql": "SELECT q.k FROM @q q"}),
    ],
    "resumed": [
        Request("POST", "/v1/queries/@p:resume"),
        Request("POST", "/v1/queries/@p:resume", None, "queries/@p"),
        Request("POST", "/v1/queries/@p:pause"),
        Request("PUT", "/v1/queries/@p", {"sql": JOIN}),
        Request("PATCH", "/v1/queries/@p", {"title": "paused"}),
        Request("DELETE", "/v1/queries/@p"),
    ],
    "ended": [
        Request("PUT", "/v1/queries/@d", {"sql": JOIN}),
        Request("PUT", "/v1/queries/@d", {"sql": OF_B, "title": "x"}, "queries/@d"),
        Request("POST", "/v1/queries", {"name": "@d", "sql": OF_B}),
        Request("PATCH", "/v1/queries/@d", {"title": "over"}),
        Request("POST", "/v1/streams", _stream("@D")),
    ],
    "read": [
        Request("POST", "/v1/queries", {"name": "@r", "sql": "SELECT g.v, g.n FROM @g g"}),
        Request("POST", "/v1/queries", {"name": "@s", "sql": "SELECT g.n FROM @g g"}),
        Request("DELETE", "/v1/queries/@g"),
        Request("DELETE", "/v1/queries/@g?cascade=true"),
        Request("POST", "/v1/queries/@g:pause"),
        Request("PUT", "/v1/queries/@g", {"sql": GROUPS + " HAVING count(*) > 1"}),
    ],
    "columns": [
        Request("POST", "/v1/streams/@a/columns", {"name": "n", "type": "int"}),
        Request("PATCH", "/v1/streams/@a/columns/v", {"type": "bigint"}),
        Request("DELETE", "/v1/streams/@a/columns/w"),
        Request("POST", "/v1/queries", {"name": "@r", "sql": ALL}),
        Request("POST", "/v1/queries", {"name": "@s", "sql": "SELECT a.w, a.v FROM @a a"}),
        Request("PATCH", "/v1/streams/@a", {"retention": {"ttl": "1 hour"}}),
        Request("PATCH", "/v1/streams/@a", {"description": "x"}, "streams/@a"),
        Request("PATCH", "/v1/queries/@q", {"slo": {"freshness": "2 hours"}}),
        Request("PUT", "/v1/queries/@q", {"sql": ALL}),
    ],
    "streams": [
        Request("DELETE", "/v1/streams/@t"),
        Request("DELETE", "/v1/streams/@t", None, "streams/@t"),
        Request("POST", "/v1/streams/@t:reread"),
        Request("POST", "/v1/queries", {"name": "@r", "sql": "SELECT t.v FROM @t t"}),
        Request("POST", "/v1/queries", {"name": "@s", "sql": "SELECT t.v, a.k FROM @a a JOIN @t t "
                                        "ON a.k = t.k"}),
        Request("POST", "/v1/streams", _stream("@t", kind="table", key=["k"])),
        Request("POST", "/v1/streams", _stream("@t")),
        Request("POST", "/v1/streams", _stream("@T")),
    ],
    "names": [
        Request("POST", "/v1/streams", _stream("@n")),
        Request("POST", "/v1/streams", _stream("@N")),
        Request("POST", "/v1/streams", _stream("@n", description="another")),
        Request("POST", "/v1/queries", {"name": "@n", "sql": OF_B}),
        Request("PUT", "/v1/queries/@N", {"sql": OF_B}),
        Request("POST", "/v1/queries", {"name": "@n", "sql": JOIN}, "", "@1"),
        Request("POST", "/v1/queries", {"name": "@n", "sql": OF_B}, "", "@1"),
    ],
    "sinks": [
        Request("POST", "/v1/queries", {"name": "@r", "sql": JOIN, "sink": SINK}),
        Request("POST", "/v1/queries", {"name": "@s", "sql": OF_B, "sink": SINK}),
        Request("PUT", "/v1/queries/@q", {"sql": JOIN, "sink": SINK}),
        Request("POST", "/v1/queries:batch", {"queries": [
            {"name": "@x", "sql": OF_B}, {"name": "@s", "sql": OF_B, "sink": SINK}]}),
        Request("POST", "/v1/queries:batch", {"atomic": False, "queries": [
            {"name": "@x", "sql": JOIN}, {"name": "@s", "sql": JOIN, "sink": SINK}]}),
    ],
    "functions": [
        Request("DELETE", "/v1/functions/@f"),
        Request("POST", "/v1/functions", F),
        Request("POST", "/v1/functions?replace=true", {**F, "attribute": "g"}),
        Request("POST", "/v1/queries", {"name": "@r", "sql": CALLS}),
        Request("PUT", "/v1/queries/@q", {"sql": CALLS}),
        Request("POST", "/v1/queries", {"name": "@s", "sql": CALLS}, "", "@2"),
    ],
}  # fmt: skip

#: Fields of records that differ from one registration to another.
_VARYING = {"created_at", "removed_at", "paused_at", "registration", "sequence"}
#: Fields of successful answers that do not depend on later requests.
_SHOWN = ("action", "fields", "run", "sql", "title", "tags", "columns", "registered", "refused")


class World:
    """Services of one pipeline, to which requests are sent alternately."""

    def __init__(self, services: list[Service]) -> None:
        self.services = services
        self._rounds = count()
        self._pool = ThreadPoolExecutor(3)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def outcome(self, requests: list[Request], *, at_once: bool, chance: int = 0) -> Any:
        """Return the answers to ``requests`` over a new set-up, and the records afterwards."""
        prefix = f"x{next(self._rounds)}x"
        for one in setup(requests):
            assert (answer := self.send(one, prefix, 0, {})).is_success, answer.text
        names = {one.version for one in requests if one.version}
        versions = {name: self._version(name, prefix) for name in names}
        barrier = Barrier(len(requests) if at_once else 1)

        def send(number: int) -> Any:
            barrier.wait()
            one = requests[number]
            answer = self.send(one, prefix, number + chance if at_once else 0, versions)
            return [answer.status_code, *_told(_plain(answer.text, prefix))]

        ways = self._pool.map if at_once else map
        answers = list(ways(send, range(len(requests))))
        return json.loads(json.dumps([answers, self._left(prefix)], sort_keys=True))

    def _version(self, name: str, prefix: str) -> str:
        path = f"/v1/{name.replace('@', prefix)}"
        return self.services[0].http.get(path).headers["etag"]

    def send(
        self, one: Request, prefix: str, number: int, versions: dict[str, str]
    ) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        if one.key:
            headers["Idempotency-Key"] = one.key.replace("@", prefix)
        if one.version:
            headers["If-Match"] = versions[one.version]
        content = None if one.body is None else json.dumps(one.body).replace("@", prefix)
        path = one.path.replace("@", prefix)
        if path == "/v1/streams" and one.method == "POST":
            path += "?wait=0"
        http = self.services[number % len(self.services)].http
        return http.request(one.method, path, content=content, headers=headers)

    def _left(self, prefix: str) -> Any:
        """Return the records of streams, runs of queries and functions of a round."""
        first = self.services[0]
        names = [prefix + name for name in ascii_letters]
        runs = [f"{name}{run}" for name in names for run in ("", "~2", "~3", "~4")]
        kept = {"streams": names, "queries": runs, "functions": names}
        found: dict[str, Any] = {}
        for kind, wanted in kept.items():
            texts = first.redis.hmget(f"{first.keys.namespace}:{kind}", wanted)
            there = zip(wanted, texts, strict=True)
            records = {name: _plain(str(text), prefix) for name, text in there if text}
            found |= {f"{kind} {name.removeprefix(prefix)}": one for name, one in records.items()}
        return found


def setup(requests: Iterable[Request]) -> list[Request]:
    """Return requests that register all that ``requests`` need."""
    found: dict[str, list[Request]] = {}

    def add(one: Request) -> None:
        for name in _NAME.findall(f"{one.path} {json.dumps(one.body)}"):
            if name in SETUP and name not in found:
                found[name] = []
                for needed in SETUP[name]:
                    add(needed)
                found[name] = SETUP[name]
                found[name] = found.pop(name)

    for one in requests:
        add(one)
    return [one for several in found.values() for one in several]


def _told(answer: Any) -> list[Any]:
    """Return code, errors or fields of an answer that depend on its own request only."""
    if not answer:
        return []
    if "code" in answer:
        return [answer["code"], [[e["field"], e["code"]] for e in answer["errors"]]]
    shown = answer.get("query") or answer
    return [{name: one[name] for one in (shown, answer) for name in _SHOWN if name in one}]


def _plain(text: str, prefix: str) -> Any:
    """Return a document without the names' prefix and what differs between registrations."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: value[k] is not None if k in _VARYING else plain(value[k]) for k in value}
        return [plain(one) for one in value] if isinstance(value, list) else value

    return plain(json.loads(text.replace(prefix, ""))) if text else None


@contextmanager
def worlds(settings: ServiceSettings, folder: Path, services: int) -> Iterator[World]:
    """Context with ``services`` of one pipeline, with a module of functions."""
    (folder / "places.py").write_text(MODULE)
    access = replace(settings.access, functions=(str(folder),))
    given = settings.changed(access=access)
    with ExitStack() as stack:
        world = World(
            [stack.enter_context(serving(replace(given, port=8080 + n))) for n in range(services)]
        )
        stack.callback(world.close)
        yield world


def check(world: World, requests: list[Request], rounds: int = 1) -> None:
    """Send ``requests`` simultaneously, ``rounds`` times; check that an order of them explains each
    outcome.
    """
    serial: list[Any] = []
    for order in permutations(range(len(requests))):
        answers, left = world.outcome([requests[n] for n in order], at_once=False)
        serial.append([[answers[order.index(n)] for n in range(len(requests))], left])
    for turn in range(rounds):
        answers, left = world.outcome(requests, at_once=True, chance=turn)
        if [answers, left] not in serial:
            lines = [f"at once: {answers}"]
            for told, records in serial:
                differing = [
                    name for name in {*left, *records} if left.get(name) != records.get(name)
                ]
                lines += [
                    f"in order: {told}",
                    *(f"  {n}: {left.get(n)}\n  {n}: {records.get(n)}" for n in differing),
                ]
            pytest.fail("\n".join([*map(str, requests), *lines]))


def draw(chance: random.Random) -> list[Request]:
    """Return two or three random requests, mostly of one kind."""
    kind = chance.choice(sorted(REQUESTS))
    some = chance.choices(REQUESTS[kind], k=chance.choice((2, 2, 2, 3)))
    if chance.random() < 0.2:
        some[-1] = chance.choice(REQUESTS[chance.choice(sorted(REQUESTS))])
    return some


#: Pairs by kind and place that once had outcomes explained by no order.
FOUND = {
    "query": [(0, 0), (1, 3)],
    "resumed": [(0, 0)],
    "ended": [(0, 0)],
    "read": [(2, 5)],
    "columns": [(2, 4)],
    "streams": [(0, 0)],
    "names": [(0, 1), (0, 3)],
    "sinks": [(0, 1)],
    "functions": [(0, 0), (2, 3)],
}


def test_an_order_explains_pairs_that_had_none(settings: ServiceSettings, tmp_path: Path) -> None:
    with worlds(settings, tmp_path, 2) as world:
        for kind, pairs in FOUND.items():
            for pair in pairs:
                check(world, [REQUESTS[kind][place] for place in pair], rounds=2)


def test_an_order_explains_random_requests(settings: ServiceSettings, tmp_path: Path) -> None:
    chance = random.Random(1)
    with worlds(settings, tmp_path, 1) as world:
        for _ in range(8):
            check(world, draw(chance))


def test_limits_hold_for_requests_at_once(settings: ServiceSettings, tmp_path: Path) -> None:
    with worlds(settings.changed(max_queries=4, max_streams=4), tmp_path, 2) as world:

        def at_once(path: str, bodies: list[dict[str, Any]]) -> list[int]:
            requests = [Request("POST", path, body) for body in bodies]
            with ThreadPoolExecutor(len(requests)) as pool:
                sent = pool.map(
                    lambda n: world.send(requests[n], "x", n, {}).status_code, range(len(requests))
                )
            return sorted(sent)

        # Pydantic builds validators at their first use, and fails if two threads do so
        # simultaneously.
        for method, path in (("POST", "/v1/streams"), ("DELETE", "/v1/streams/@z")):
            body = _stream("@z") if method == "POST" else None
            assert world.send(Request(method, path, body), "x", 0, {}).is_success
        streams = [_stream(f"@{name}") for name in "abcdef"]
        assert at_once("/v1/streams", streams) == [201] * 4 + [409] * 2
        kept = world.services[0].get("/v1/streams")["items"][0]["name"]
        queries = [{"name": f"@{n}", "sql": f"SELECT s.k FROM {kept} s"} for n in "nopqrstu"]
        together = {"queries": [{**one, "name": f"{one['name']}b"} for one in queries[:5]]}
        assert at_once("/v1/queries:batch", [together]) == [409]
        assert at_once("/v1/queries", queries) == [201] * 4 + [409] * 4


def test_of_two_administrators_one_remains(settings: ServiceSettings, tmp_path: Path) -> None:
    with guarded(settings, tmp_path) as locked:
        for _ in range(5):
            made = [locked.create("admin"), locked.create("admin")]
            others = [
                one["id"]
                for one in locked.service.get("/v1/tokens")["items"]
                if one["role"] == "admin" and one["id"] not in [m["id"] for m in made]
            ]
            locked.service.http.headers.update(bearer(made[0]["token"]))
            for ident in others:
                locked.service.call("DELETE", f"/v1/tokens/{ident}", 200)

            def revoke(number: int, made: list[dict[str, Any]] = made) -> int:
                path = f"/v1/tokens/{made[1 - number]['id']}"
                return locked.call("DELETE", path, made[number]["token"]).status_code

            with ThreadPoolExecutor(2) as pool:
                found = list(pool.map(revoke, range(2)))
            assert sorted(found) in ([200, 401], [200, 409])
            left = made[0] if found[0] == 200 else made[1]
            locked.service.http.headers.update(bearer(left["token"]))
            locked.service.get("/v1/tokens")


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(REQUESTS))
@pytest.mark.parametrize("services", [1, 2])
def test_an_order_explains_all_pairs(
    settings: ServiceSettings, tmp_path: Path, services: int, kind: str
) -> None:
    with worlds(settings, tmp_path, services) as world:
        for pair in combinations_with_replacement(REQUESTS[kind], 2):
            check(world, list(pair), rounds=4)
