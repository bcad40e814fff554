"""Generates ``docs/settings.md``: settings of planning, and of the service's process."""

from __future__ import annotations

from typing import Any

from anabranch_contract.rest.planning.settings import SettingsIn
from anabranch_service.__main__ import parser
from anabranch_service.settings import ENV_PREFIX, OPTIONS
from scripts.reference.cli import commands
from scripts.reference.rest import kind
from scripts.reference.table import code, table

HEAD = """\
# Settings

Made from the code (`make reference`). Options of the runtime are in a table of their own:
[runtime](../deploy/README.md#configuration).

## Planning

Changed while a pipeline runs, by `anabranch settings set` or
[`PATCH /v1/settings`](rest-guide.md#patch-v1settings), from the next planned epoch on. `null` in
the body is `none`, `never` or `any` of the option.
"""
SERVICE = """\
## Service

Options of `python -m anabranch_service`; each has a variable as well. An option overrides its
variable. `optimizer`, `objective`, `parallelism` and `revision_gain` hold until a planning setting
changes them.
"""


def page() -> str:
    """Return the text of the page."""
    schema = SettingsIn.model_json_schema(ref_template="{model}")
    command = dict(commands())["anabranch settings set"]
    options = {p.name: p for p in command.params}
    planning = table(
        ("setting", "option", "type", "meaning"),
        (
            (
                code(name),
                code(options[name].opts[0]),
                _kind(value, schema["$defs"]),
                options[name].help,
            )
            for name, value in schema["properties"].items()
        ),
    )
    defaults = {name: option.default for name, option in OPTIONS.items()}
    service = table(
        ("option", "variable", "default", "meaning"),
        [
            (
                code(action.option_strings[0]),
                code(f"{ENV_PREFIX}{action.dest.upper()}"),
                code(getattr(defaults.get(action.dest), "value", defaults.get(action.dest, ""))),
                action.help or "",
            )
            for action in parser()._actions
            if action.dest != "help"
        ],
    )
    return "\n".join([HEAD, *planning, SERVICE, *service]).rstrip() + "\n"


def _kind(value: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return the type of a setting, with choices; null is omitted, as the page explains it."""
    parts = [definitions.get(part.get("$ref"), part) for part in value.get("anyOf", [value])]
    return kind({"anyOf": [part for part in parts if part.get("type") != "null"]})
