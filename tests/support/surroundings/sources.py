"""Records of streams as the service hands them to the runtime."""

from __future__ import annotations

from anabranch_contract.codec import to_json
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.types import parse_type
from anabranch_planner.sources.check_source import check_source


def understood(record: StreamRecord) -> StreamRecord:
    """``record`` with how Spark reads its source, as at a registration."""
    source = record.source
    columns = [(c.name, parse_type(c.type)) for c in record.columns]
    found = check_source(source.format, source.path, source.options, columns)
    return record.model_copy(update={"reading": None if found is None else to_json(found)})
