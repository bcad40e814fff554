"""The OpenAPI document: FastAPI's, completed with error schemas and the security scheme."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from anabranch_contract.rest.system import Problem
from anabranch_service.access.guarded import SECURITY_SCHEMES
from anabranch_service.refusals import MEDIA_TYPE

_REFERENCE = "#/components/schemas/{model}"

#: Error responses in the document, common to all routes.
RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {
        "description": "Problem details (RFC 9457)",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
    }
    for code in (422, "default")
}


class Documented(FastAPI):
    """A FastAPI application with the error schemas and the security scheme in its document."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            components = super().openapi().setdefault("components", {})
            components["securitySchemes"] = SECURITY_SCHEMES
            _, problems = models_json_schema([(Problem, "serialization")], ref_template=_REFERENCE)
            components.setdefault("schemas", {}).update(problems["$defs"])
        assert self.openapi_schema is not None
        return self.openapi_schema
