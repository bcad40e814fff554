"""Measures of the shipped code: folders, files, import cycles, class names, fields, lines.

A measure maps a violation's key (a path, a class) to its size. Tests and the command
``python -m tests.support.structure`` compare it with the accepted violations.
"""

from __future__ import annotations

import ast
import gc
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import grimp
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

ROOT: Final = Path(__file__).resolve().parents[3]
PACKAGES: Final = ("contract", "planner", "runtime", "service", "client")
_IMPORTED: Final = tuple(f"anabranch_{package}" for package in PACKAGES)
FOLDER_FILES: Final = 16
FILE_LINES: Final = 700
FIELDS: Final = 20


@cache
def sources() -> dict[str, str]:
    """Path relative to the tree → text, of all shipped Python files."""
    return {
        file.relative_to(ROOT).as_posix(): file.read_text()
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def _trees() -> dict[str, ast.Module]:
    # The syntax trees have millions of nodes: without the freeze, every later garbage collection
    # visits all of them.
    gc.disable()
    trees = {path: ast.parse(text) for path, text in sources().items()}
    gc.freeze()
    gc.enable()
    return trees


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield path, node


def large_folders() -> dict[str, int]:
    """Folder → number of modules, where more than FOLDER_FILES (``__init__`` not counted)."""
    counts = Counter(
        Path(path).parent.as_posix() for path in sources() if not path.endswith("__init__.py")
    )
    return {folder: count for folder, count in counts.items() if count > FOLDER_FILES}


def long_files() -> dict[str, int]:
    """File → lines, where more than FILE_LINES."""
    lengths = {path: text.count("\n") for path, text in sources().items()}
    return {path: length for path, length in lengths.items() if length > FILE_LINES}


def import_cycles(packages: tuple[str, ...] = _IMPORTED) -> dict[str, int]:
    """Modules of each import cycle, joined → their number.

    Deferred imports and imports for type checking count: they hide a cycle from the interpreter,
    not from the reader.
    """
    graph = grimp.build_graph(*packages, cache_dir=None)
    modules = sorted(graph.modules)
    index = {module: i for i, module in enumerate(modules)}
    arrows = [
        (index[module], index[imported])
        for module in modules
        for imported in graph.find_modules_directly_imported_by(module)
    ]
    rows, columns = zip(*arrows, strict=True)
    matrix = coo_array(([1] * len(arrows), (rows, columns)), shape=(len(modules),) * 2)
    _, labels = connected_components(matrix, directed=True, connection="strong")
    components = defaultdict(list)
    for module, label in zip(modules, labels.tolist(), strict=True):
        components[label].append(module)
    return {" ".join(cycle): len(cycle) for cycle in components.values() if len(cycle) > 1}


def repeated_classes() -> dict[str, int]:
    """Class name → number of modules that define it, where several do."""
    modules = defaultdict(set)
    for path, node in _classes():
        modules[node.name].add(path)
    return {name: len(paths) for name, paths in modules.items() if len(paths) > 1}


def _is_dataclass(node: ast.ClassDef) -> bool:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name == "dataclass":
            return True
    return False


def wide_dataclasses() -> dict[str, int]:
    """Dataclass → number of its own fields, where more than FIELDS."""
    widths = {
        f"{path}:{node.name}": sum(
            isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation)
            for line in node.body
        )
        for path, node in _classes()
        if _is_dataclass(node)
    }
    return {name: width for name, width in widths.items() if width > FIELDS}


def shipped_lines() -> dict[str, int]:
    """Lines of all shipped Python files, under the key ``lines``."""
    return {"lines": sum(text.count("\n") for text in sources().values())}
