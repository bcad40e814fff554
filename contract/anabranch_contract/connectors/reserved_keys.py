"""Checks of Redis keys in registrations, which must not name a pipeline's own records.

A URL may address the pipeline's own Redis server by another name, so all servers' keys are checked.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch_contract.connectors.policy import AccessError


def check_source_keys(keys: Iterable[str], namespace: str) -> None:
    """Refuse a source that reads the pipeline's own Redis keys, except keys of streams and results.

    Raises:
        AccessError: ``reserved-key``.

    >>> check_source_keys(["orders", "anabranch:stream:s", "anabranch:results:q"], "anabranch")
    """
    for key in keys:
        _check_key(key, namespace, ("stream:", "results:"), "source.options.keys")


def check_push_key(key: str, namespace: str) -> None:
    """Refuse pushed rows for one of the pipeline's own Redis keys, except keys of streams.

    Raises:
        AccessError: ``reserved-key``.
    """
    _check_key(key, namespace, ("stream:",), "source.options.keys", write=True)


def check_sink_key(key: str, namespace: str) -> None:
    """Refuse a sink that writes to one of the pipeline's own Redis keys, except keys of streams.

    Raises:
        AccessError: ``reserved-key``.
    """
    _check_key(key, namespace, ("stream:",), "sink.options.stream", write=True)


def _check_key(
    key: str, namespace: str, open_: tuple[str, ...], field: str, *, write: bool = False
) -> None:
    prefix = f"{namespace}:"
    own = key == namespace or key.startswith(prefix)
    # The sink records its position under the key {<stream>}:anabranch.
    position = write and key.endswith(":anabranch")
    if position or (own and not key[len(prefix) :].startswith(open_)):
        raise AccessError(
            "reserved-key",
            f"the key {key[:200]!r} is the pipeline's own",
            field=field,
            remedy=f"name another; of those that begin with {prefix!r} only "
            + " and ".join(f"{prefix}{part}..." for part in open_)
            + " may be named",
        )
