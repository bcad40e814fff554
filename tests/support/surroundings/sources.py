"""Records of streams in the form in which the service passes them to the runtime."""

from __future__ import annotations

from anabranch_contract.codec import to_json
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.types import parse_type
from anabranch_planner.sources.check_source import check_source


def understood(record: StreamRecord) -> StreamRecord:
    """Return ``record`` with instructions for Spark to read its source, as at a registration."""
    source = record.source
    columns = [(c.name, parse_type(c.type)) for c in record.columns]
    found = check_source(source.format, source.path, source.options, columns)
    return record.model_copy(update={"reading": None if found is None else to_json(found)})
