"""Delta or Iceberg tables in a folder, written and read as by other programs."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sources.lake.library import catalog_of
from tests.support.surroundings.deliveries import sink
from tests.support.surroundings.tpc import library

FORMATS = ("delta", "iceberg")
_SCAN = """
import importlib, json, pathlib, sys
import duckdb
form, place, order = sys.argv[1:]
db = duckdb.connect(config={"allow_unsigned_extensions": True})
db.execute("SET autoinstall_known_extensions = false; SET TimeZone = 'UTC'")
for name in ("avro", form) if form == "iceberg" else (form,):
    module = importlib.import_module(f"duckdb_extension_{name}")
    extension, = pathlib.Path(module.__file__).parent.rglob(f"{name}.duckdb_extension")
    db.load_extension(str(extension))
found = db.execute(f"SELECT * FROM {form}_scan('{place}') ORDER BY {order}").fetchall()
print(json.dumps(found, default=str))
"""


@dataclass
class Lake:
    """A Delta or Iceberg table in ``folder``.

    Attributes:
        form: ``delta`` or ``iceberg``.
    """

    form: str
    folder: Path

    def configured(self, patch: pytest.MonkeyPatch) -> Lake:
        """Put the table's catalog into the environment of this process and its children; return the
        table.
        """
        for name, text in self.catalog_settings().items():
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", text)
        catalog_of.cache_clear()
        return self

    def catalog_settings(self) -> dict[str, str]:
        """Settings of a catalog in an SQLite database."""
        warehouse = self.folder / "warehouse"
        warehouse.mkdir(parents=True, exist_ok=True)
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{warehouse}",
        }

    @property
    def path(self) -> str:
        """Directory of the Delta table."""
        return str(self.folder / "table")

    @property
    def catalog(self) -> Catalog:
        """Return a new connection to the catalog."""
        settings: Any = Config().get_catalog_config("lake")
        return load_catalog("lake", **settings)

    def sink(self, **options: str) -> SinkSpec:
        """Return the table as a sink."""
        if self.form == "delta":
            return sink("delta", self.path, **options)
        return sink("iceberg", table="lake.db.table", **options)

    def commit(self, delivery: Delivery, writer: str = "w") -> None:
        """Commit a delivery as the runtime does."""
        importlib.import_module(f"anabranch_runtime.sinks.lake.{self.form}").commit(
            delivery, writer
        )

    def read(self) -> pa.Table:
        """Return all rows, read by the format's own library."""
        if self.form == "delta":
            return DeltaTable(self.path).to_pyarrow_table()
        return self.catalog.load_table("db.table").scan().to_arrow()

    def add(self, rows: pa.RecordBatch) -> None:
        """Commit rows as another program would."""
        table = pa.Table.from_batches([rows])
        if self.form == "delta":
            write_deltalake(self.path, table, mode="append")
        else:
            self.catalog.load_table("db.table").append(table)

    def files(self) -> int:
        """Number of data files."""
        if self.form == "delta":
            return len(DeltaTable(self.path).file_uris())
        return len(list(self.catalog.load_table("db.table").scan().plan_files()))

    def remove(self) -> None:
        """Drop the table and its files."""
        if self.form == "delta":
            shutil.rmtree(self.path)
        else:
            self.catalog.purge_table("db.table")

    def by_duckdb(self, cache: Path, order: str) -> list[list[Any]]:
        """Return all rows as DuckDB reads them, as JSON values, sorted by the column ``order``.

        Raises:
            subprocess.CalledProcessError: DuckDB's extensions can't be installed, or fail.
        """
        place = self.path
        if self.form == "iceberg":
            place = self.catalog.load_table("db.table").metadata_location.removeprefix("file://")
        found = library(cache, *(f"duckdb-extension-{n}" for n in ("avro", "delta", "iceberg")))
        done = subprocess.run(
            [sys.executable, "-c", _SCAN, self.form, place, order],
            env={**os.environ, "PYTHONPATH": str(found)},
            check=True,
            capture_output=True,
            text=True,
        )
        rows: list[list[Any]] = json.loads(done.stdout)
        return rows
