"""Libraries of the extra ``lake``, and Iceberg catalogs from their configuration."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Literal

from anabranch_contract.connectors.lake.options import TABLE
from anabranch_runtime.errors import SinkError, SourceError

Side = Literal["source", "sink"]
_ERRORS = {"source": SourceError, "sink": SinkError}


def library(name: str, side: Side = "source") -> Any:
    """Import a module of the extra ``lake``; ``side``: whether a source or a sink needs it.

    Raises:
        SourceError, SinkError: ``no-library``: the extra is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        raise _ERRORS[side](
            "no-library",
            f"the runtime lacks {name.partition('.')[0]}, for these tables: {cause}",
            field=f"{side}.format",
            remedy="install anabranch[lake] where the runtime runs, and start it again; nothing is "
            "lost",
        ) from cause


@lru_cache(maxsize=16)
def catalog_of(name: str, side: Side = "source") -> Any:
    """Return the catalog ``name`` of PyIceberg's configuration in this process's environment.

    Raises:
        SourceError, SinkError: ``no-catalog``: no catalog has this name; or as :func:`library`.
    """
    return library("pyiceberg.catalog", side).load_catalog(name, **_catalog_settings(name, side))


@lru_cache(maxsize=16)
def files_of(name: str, location: str) -> Any:
    """Return access to the table files at ``location`` by the settings of the catalog ``name``."""
    return library("pyiceberg.io").load_file_io(_catalog_settings(name, "source"), location)


def _catalog_settings(name: str, side: Side) -> dict[str, Any]:
    config = library("pyiceberg.utils.config", side).Config()
    found, known = config.get_catalog_config(name), config.get_known_catalogs()
    if found is None:
        raise _ERRORS[side](
            "no-catalog",
            f"the runtime knows no catalog {name}, only {', '.join(known) or 'none'}",
            field=f"{side}.options.{TABLE}",
            remedy="configure it by variables PYICEBERG_CATALOG__<NAME>__... of the runtime, or a "
            "file .pyiceberg.yaml, and start the runtime again; nothing is lost",
        )
    return dict(found)
