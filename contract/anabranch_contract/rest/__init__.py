"""The bodies of the REST API. Requests with unknown fields are refused; answers have all fields.

Modules are imported when first used: a command of the client needs the bodies of few routes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.deferred import modules_of

if not TYPE_CHECKING:
    __getattr__ = modules_of(__name__)
