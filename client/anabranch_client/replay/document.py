"""YAML files as documents, with the line numbers of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from anabranch_client.errors import ScenarioError, UsageError
from anabranch_client.texts import read_utf8


@dataclass(frozen=True, slots=True)
class YamlFile:
    """The parsed content of a file, and its YAML nodes."""

    document: object
    root: yaml.Node | None

    def line(self, place: Sequence[str | int]) -> int | None:
        """Line of the innermost field on the path ``place`` that the file contains, or None.

        Fields that only the parsed document has are skipped, such as the batch of a retention if
        the file gives the retention without batches.
        """
        node, found = self.root, None
        for part in place:
            for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
                if key.value == str(part):
                    node, found = value, key.start_mark.line + 1
                    break
        return found


class _ScenarioLoader(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys; plain YAML would take the last one."""


def _mapping(loader: _ScenarioLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, (list, dict)):
            continue
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"key {key!r} occurs more than once", problem_mark=key_node.start_mark
            )
        seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_ScenarioLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: Path, kind: str = "scenario") -> YamlFile:
    """Read a YAML file; ``kind`` names the kind of document in errors.

    Raises:
        ScenarioError: the file can't be read, or is not YAML; with the line, if known.
    """
    try:
        text = read_utf8(path, kind=kind)
        return YamlFile(
            yaml.load(text, Loader=_ScenarioLoader), yaml.compose(text, Loader=_ScenarioLoader)
        )
    except UsageError as cause:
        raise ScenarioError(cause.message, remedy=cause.remedy) from cause
    except yaml.MarkedYAMLError as cause:
        mark = cause.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ScenarioError(
            f"{path} is not a valid YAML{where}: {cause.problem or cause}",
            remedy="correct the file there",
        ) from cause
    except yaml.YAMLError as cause:
        raise ScenarioError(f"{path} is not valid YAML: {cause}", remedy="correct it") from cause
