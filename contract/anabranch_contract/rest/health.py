"""Body of ``/v1/health``."""

from __future__ import annotations

from typing import Literal

from anabranch_contract.rest.documents import Document, Open, Time


class ComponentOut(Document):
    """A part of the system, and how it is.

    ``failed``: it does not do its work. ``warning``: it does, but not as it should. ``since`` is
    when the service has first seen it so; of a source when the runtime has. ``message`` says what
    is wrong, ``remedy`` what to do.
    """

    kind: Open[
        Literal[
            "service", "redis", "epoch loop", "plan", "runtime", "stream", "query", "completeness"
        ]
    ]
    name: str
    state: Open[Literal["ok", "warning", "failed"]]
    since: Time
    message: str = ""
    remedy: str = ""


class HealthOut(Document):
    """All components, those first that need somebody."""

    components: list[ComponentOut]
