"""The operator's access policy: formats, root directories, hosts. Nothing is opened here.

>>> policy = AccessPolicy(paths=("/data", "/work"), reserved=("/work/state",), hosts=("*.lan",))
>>> [policy.permits_path(p) for p in ("/data/x", "/database", "/work/a", "/work/state/a")]
[True, False, True, False]
>>> [policy.permits_host(h, 9092) for h in ("a.lan", "lan", "localhost", "evil.example")]
[True, False, True, False]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from anabranch_contract.codec import Message
from anabranch_contract.errors import PlannerError

#: Formats of sources and of sinks that are allowed without ``--allow-format``.
SOURCES = frozenset({
    "recorded", "redis-stream", "files", "kafka", "postgres", "rate", "rate-micro-batch",
    "parquet", "json", "csv", "text", "orc", "xml", "avro", "delta", "iceberg",
})  # fmt: skip
SINKS = frozenset({
    "count", "parquet", "redis-stream", "json", "csv", "orc", "text", "xml", "avro", "delta",
    "kafka", "iceberg", "webhook",
})  # fmt: skip
#: Hosts that are allowed without ``--allow-host``.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: Network of IPv6 addresses that end with an IPv4 address (NAT64).
_NAT64 = IPv6Network("64:ff9b::/96")


class AccessError(PlannerError):
    """A registration names a format, path, host or key that the operator does not allow."""


@dataclass(frozen=True, slots=True)
class AccessPolicy(Message):
    """Formats, paths, hosts and modules that registrations may use in addition to the defaults.

    Attributes:
        formats: additional formats of sources and sinks.
        paths: directories, absolute and resolved, below which files may be read and written.
        reserved: directories within ``paths`` that may not be used. Of all directories in both
            lists that contain a path, the longest decides.
        read_only: directories within ``paths`` that only sources may use.
        hosts: ``host``, ``host:port``, ``*.suffix`` or ``*``; in URIs the host, or the bucket.
        functions: modules of users' functions, ``NAME.py``, and folders of modules.
    """

    formats: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()

    def permits_path(self, path: str, *, write: bool = False) -> bool:
        """Whether the policy permits ``path`` (absolute and resolved)."""
        closed = (*self.reserved, *self.read_only) if write else self.reserved
        allowed = max((len(root) for root in self.paths if _within(path, root)), default=-1)
        refused = max((len(root) for root in closed if _within(path, root)), default=-1)
        return allowed > refused

    def permits_host(self, host: str, port: int | None, *, listed: bool = False) -> bool:
        """Whether the policy permits connections to ``host``, by its name without a DNS look-up.

        With ``listed``, ports of this machine must be listed as well, under one of its names.
        """
        name = host.lower().rstrip(".").strip("[]")
        own = name in LOOPBACK
        if own and not listed:
            return True
        names = LOOPBACK if own else {name}
        return any(_host_fits(n, port, entry.lower()) for entry in self.hosts for n in names)

    def permits_address(self, host: str, port: int, address: str) -> bool:
        """Whether the policy permits a connection to the IP ``address`` of ``host``. If the address
        is not public, host or address must be listed by name, without ``*``.

        >>> policy = AccessPolicy(hosts=("*", "hooks.lan"))
        >>> [policy.permits_address(h, 80, "10.0.0.1") for h in ("hooks.lan", "evil.example")]
        [True, False]
        """
        found = ip_address(address.partition("%")[0])
        # An IPv6 address that contains an IPv4 address is judged as the IPv4 address.
        if isinstance(found, IPv6Address):
            inner = found.ipv4_mapped or found.sixtofour
            found = inner or (IPv4Address(found.packed[-4:]) if found in _NAT64 else found)
        if found.is_global and not found.is_multicast:
            return True
        named = replace(self, hosts=tuple(h for h in self.hosts if not h.startswith("*")))
        return any(named.permits_host(name, port, listed=True) for name in (host, str(found)))

    def with_server(self, url: str) -> AccessPolicy:
        """Return this policy with the server of ``url``, the pipeline's own Redis, allowed."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return self
        if host is None:
            return self
        name = f"[{host}]" if ":" in host else host
        return replace(self, hosts=(*self.hosts, f"{name}:{port or 6379}"))

    @staticmethod
    def read(
        environ: Mapping[str, str],
        given: Mapping[str, Sequence[str] | None],
        resolve: Callable[[str], str],
    ) -> AccessPolicy:
        """Read the policy from environment variables (``ANABRANCH_ALLOW_PATH`` etc.) and options.

        Args:
            environ: the variables; paths are separated by colons, other items by commas.
            given: the options ``allow_path``, ``allow_host``, ``allow_format``, ``reserve_path``,
                ``read_only_path`` and ``functions``; an option overrides its variable.
            resolve: follows links and ``..`` of a path.

        >>> AccessPolicy.read({"ANABRANCH_ALLOW_HOST": "a:1,b"}, {"allow_path": ["/x"]}, str).hosts
        ('a:1', 'b')
        """

        def items(name: str) -> tuple[str, ...]:
            listed = given.get(name)
            if listed is None:
                separator = ":" if name.endswith(("path", "functions")) else ","
                listed = environ.get(f"ANABRANCH_{name.upper()}", "").split(separator)
            return tuple(dict.fromkeys(item.strip() for item in listed if item.strip()))

        def paths(name: str) -> tuple[str, ...]:
            return tuple(dict.fromkeys(map(resolve, items(name))))

        return AccessPolicy(
            formats=frozenset(items("allow_format")),
            paths=paths("allow_path"),
            reserved=paths("reserve_path"),
            read_only=paths("read_only_path"),
            hosts=items("allow_host"),
            functions=items("functions"),
        )


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _host_fits(name: str, port: int | None, entry: str) -> bool:
    host, wanted = entry, None
    if entry.count(":") == 1 or entry.startswith("["):
        head, _, tail = entry.rpartition(":")
        if tail.isdigit():
            host, wanted = head, int(tail)
    host = host.strip("[]").rstrip(".")
    if host == "*":
        return wanted in (None, port)
    if wanted is not None and wanted != port:
        return False
    return name.endswith(host[1:]) if host.startswith("*.") else name == host


def listed(items: Iterable[str], none: str = "none") -> str:
    """Return a list of what the policy allows, for a message; ``none`` if empty."""
    return ", ".join(items) or none
