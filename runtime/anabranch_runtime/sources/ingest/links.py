"""Rejection of rows from files outside the allowed paths, which Spark has read through a link.

Spark itself lists directories, and follows links in them. So every row from Spark has the name of
its file, and the task that writes the row to disk checks this file.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_runtime.sources.permitted import resolve

#: Last column of rows from files: name of the file that the row is from.
FILE = "#file"


def closed(part: pa.RecordBatch, columns: int, access: AccessPolicy) -> pa.RecordBatch:
    """Return the first ``columns`` columns; the last one has the raw input of invalid rows.

    Rows from a file that may not be read become invalid rows without content.
    """
    names = part.schema.names[:columns]
    if part.num_columns == columns:
        return part
    files = part.column(columns)
    outside = [file for file in pc.unique(files).to_pylist() if not _may_read(file, access)]
    if not outside:
        return part.select(names)
    hidden = pc.is_in(files, pa.array(outside, files.type))
    *values, arrived = part.columns[:columns]
    emptied = [pc.if_else(hidden, pa.scalar(None, v.type), v) for v in values]
    marked = pc.if_else(hidden, pa.scalar(b"", arrived.type), arrived)
    return pa.RecordBatch.from_arrays([*emptied, marked], names=names)


def _may_read(file: str, access: AccessPolicy) -> bool:
    """Whether the access policy allows ``file``; remote files' hosts have been checked before."""
    parts = urlsplit(file)
    return parts.scheme != "file" or access.permits_path(resolve(unquote(parts.path)))
