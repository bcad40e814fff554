"""Signatures of the SQL functions of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import BIGINT, INT, STRING
from anabranch_contract.queries.expressions import BOOLEAN, Call, Expr, Literal
from anabranch_contract.queries.json_paths import steps
from anabranch_contract.queries.regular import Regular, rewritten, rewritten_replacement
from anabranch_contract.queries.types import INTEGRAL, NUMERIC, DataType, TypeKind, array_of
from anabranch_planner.binding.functions.collections import (
    joined_or,
    require_comparable,
    reversed_or,
)
from anabranch_planner.binding.functions.formats import formatted, shown
from anabranch_planner.binding.functions.signatures import (
    Argument,
    Rewriting,
    Signature,
    bad_literal,
    converted,
    rewriting,
    text_of,
)
from anabranch_planner.sql import functions

_T, _I, _P, _B = Argument.TEXT, Argument.INT, Argument.PATTERN, Argument.BINARY
_URL_PARTS = (
    "HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO",
)  # fmt: skip
_SPACE, _NOTHING, _ONE = Literal(" ", STRING), Literal("", STRING), Literal(1, INT)


def _regular(args: list[Expr]) -> list[Expr]:
    _read("rlike", args[1])
    return args


def _counted(args: list[Expr]) -> list[Expr]:
    if _read("regexp_count", args[1]).takes_nothing:
        raise _of_nothing("regexp_count", args[1])
    return args


def _of_nothing(name: str, pattern: Expr) -> QueryError:
    return bad_literal(name, pattern, "an empty text matches", "write e.g. + instead of *")


def _read(name: str, pattern: Expr) -> Regular:
    try:
        return rewritten(text_of(pattern))
    except ValueError as cause:
        remedy = "write a regular expression without lookaround, backreference or +-quantifier"
        raise bad_literal(name, pattern, str(cause), remedy) from cause


def _extracted(args: list[Expr]) -> list[Expr]:
    groups, group = _read("regexp_extract", args[1]).groups, args[2]
    if not isinstance(group, Literal) or not isinstance(group.value, int):
        raise QueryError(
            "unsupported-sql",
            f"regexp_extract() of group {group}, which is not a literal, is not supported",
            remedy="write the group's number",
        )
    if not 0 <= group.value <= groups:
        raise bad_literal(
            "regexp_extract", args[1], f"it has {groups} groups, not {group}", "write 0 for all"
        )
    return args


def _replaced(args: list[Expr]) -> list[Expr]:
    found = _read("regexp_replace", args[1])
    if found.takes_nothing and text_of(args[2]) and text_of(args[1]) not in ("^", "$"):
        # Regex engines differ on empty matches next to other matches; only if the replacement text
        # is empty do these not change the result.
        raise _of_nothing("regexp_replace", args[1])
    try:
        rewritten_replacement(text_of(args[2]), found.groups)
    except ValueError as cause:
        raise bad_literal(
            "regexp_replace", args[2], str(cause), "write $1 for the first group, \\$ for a $"
        ) from cause
    return args


def _split(args: list[Expr]) -> list[Expr]:
    if _read("split", args[1]).takes_nothing:
        raise _of_nothing("split", args[1])
    return args


def _path(args: list[Expr]) -> list[Expr]:
    try:
        steps(text_of(args[1]))
    except ValueError as cause:
        raise bad_literal(
            "get_json_object", args[1], str(cause), "write a path such as '$.a.b[0]'"
        ) from cause
    return args


_CHAR = Signature("char", (Argument.BIGINT,), STRING)
_INSTR = Signature("instr", (_T, _T), INT)
_RLIKE = Signature("rlike", (_T, _P), BOOLEAN, check=_regular)
_SHA1 = Signature("sha1", (_B,), STRING)
_LOCATED = Signature("locate", (_T, _T, _I), INT, least=2, rest=(_ONE,))
_SIGNATURES: dict[str, Signature] = {
    "ascii": Signature("ascii", (_T,), INT),
    "base64": Signature("base64", (_B,), STRING),
    "bin": Signature("bin", (Argument.BIGINT,), STRING),
    "bit_length": Signature("bit_length", (_B,), INT),
    "btrim": Signature("btrim", (_T, _T), STRING, least=1, rest=(_SPACE,)),
    "char": _CHAR,
    "chr": _CHAR,
    "conv": Signature("conv", (_T, _I, _I), STRING),
    "crc32": Signature("crc32", (_B,), BIGINT),
    "get_json_object": Signature("get_json_object", (_T, _P), STRING, check=_path),
    "initcap": Signature("initcap", (_T,), STRING),
    "instr": _INSTR,
    "levenshtein": Signature("levenshtein", (_T, _T), INT),
    "lpad": Signature("lpad", (_T, _I, _T), STRING, least=2, rest=(_SPACE,)),
    "ltrim": Signature("ltrim", (_T,), STRING),
    "md5": Signature("md5", (_B,), STRING),
    "octet_length": Signature("octet_length", (_B,), INT),
    "overlay": Signature("overlay", (_T, _T, _I, _I), STRING, least=3, rest=(Literal(-1, INT),)),
    "regexp": _RLIKE,
    "regexp_count": Signature("regexp_count", (_T, _P), INT, check=_counted),
    "regexp_extract": Signature(
        "regexp_extract", (_T, _P, _I), STRING, least=2, rest=(_ONE,), check=_extracted
    ),
    "regexp_like": _RLIKE,
    "regexp_replace": Signature("regexp_replace", (_T, _P, _P), STRING, check=_replaced),
    "repeat": Signature("repeat", (_T, _I), STRING),
    "replace": Signature("replace", (_T, _T, _T), STRING, least=2, rest=(_NOTHING,)),
    "reverse": Signature("reverse", (_T,), STRING),
    "rlike": _RLIKE,
    "rpad": Signature("rpad", (_T, _I, _T), STRING, least=2, rest=(_SPACE,)),
    "rtrim": Signature("rtrim", (_T,), STRING),
    "sha": _SHA1,
    "sha1": _SHA1,
    "sha2": Signature("sha2", (_B, _I), STRING),
    "soundex": Signature("soundex", (_T,), STRING),
    "split": Signature("split", (_T, _P), array_of(STRING), check=_split),
    "split_part": Signature("split_part", (_T, _T, _I), STRING),
    "substring_index": Signature("substring_index", (_T, _T, _I), STRING),
    "translate": Signature("translate", (_T, _T, _T), STRING),
    "unhex": Signature("unhex", (_T,), DataType(TypeKind.BINARY)),
    "url_decode": Signature("url_decode", (_T,), STRING),
    "url_encode": Signature("url_encode", (_T,), STRING),
}


def _locate(args: Sequence[Expr]) -> Expr:
    """Typed ``locate(part, text[, start])``, which is 0 if ``start`` is NULL."""
    found = _LOCATED(args)
    if len(args) == 2 or (isinstance(args[2], Literal) and args[2].value is not None):
        return found
    missing = Call("is_null", (args[2],), BOOLEAN)
    return Call("case", (missing, Literal(0, INT), found), INT)


def _format_number(args: Sequence[Expr]) -> Expr:
    digits = converted("format_number", args[1], Argument.INT)
    if args[0].type.kind not in NUMERIC or not isinstance(digits, Literal):
        raise QueryError(
            "type-mismatch",
            f"format_number() takes a number and a literal number of digits, not {args[0]} of type "
            f"{args[0].type} and {digits}",
            remedy="write format_number(x, 2)",
        )
    return Call("format_number", (args[0], digits), STRING)


def _hash(op: str, kind: DataType) -> Callable[[Sequence[Expr]], Expr]:
    def made(args: Sequence[Expr]) -> Expr:
        # Leave NULLs out: a NULL does not change the hash of the values before it, or the seed.
        present = [arg for arg in args if arg.type.kind is not TypeKind.NULL]
        for arg in present:
            require_comparable(f"{op}() of", arg)
        return Call(op, tuple(present), kind) if present else Literal(42, kind)

    return made


def _hex(args: Sequence[Expr]) -> Expr:
    kind = args[0].type.kind
    if kind in INTEGRAL:
        return Call("hex", (converted("hex", args[0], Argument.BIGINT),), STRING)
    if kind is TypeKind.BINARY:
        return Call("hex", (args[0],), STRING)
    return Call("hex", (converted("hex", args[0], Argument.TEXT),), STRING)


def _url_part(args: Sequence[Expr]) -> Expr:
    url, *literals = args
    kinds = [Argument.TEXT, *(Argument.PATTERN for _ in literals)]
    url, *literals = (converted("parse_url", a, k) for a, k in zip(args, kinds, strict=True))
    part = text_of(literals[0])
    if part not in _URL_PARTS:
        raise bad_literal(
            "parse_url", literals[0], "there is no such part", f"write {', '.join(_URL_PARTS)}"
        )
    return Call("parse_url", (url, *literals), STRING)


def _space(args: Sequence[Expr]) -> Expr:
    return _SIGNATURES["repeat"]([Literal(" ", STRING), *args])


def _concat(args: Sequence[Expr]) -> Expr:
    binary = [arg for arg in args if arg.type.kind is TypeKind.BINARY]
    if binary and len(binary) == len(args):
        return functions.call("concat", args)
    return functions.call("concat", [converted("concat", arg, Argument.TEXT) for arg in args])


#: SQL function of texts -> rewriting of its calls.
TEXTS: dict[str, Rewriting] = {
    **{name: rewriting(one) for name, one in _SIGNATURES.items()},
    "reverse": Rewriting(1, 1, reversed_or(_SIGNATURES["reverse"])),
    "concat": Rewriting(1, None, joined_or(_concat)),
    "format_number": Rewriting(2, 2, _format_number),
    "format_string": Rewriting(1, None, formatted),
    "hash": Rewriting(1, None, _hash("hash", INT)),
    "hex": Rewriting(1, 1, _hex),
    "parse_url": Rewriting(2, 3, _url_part),
    "printf": Rewriting(1, None, formatted),
    "to_char": Rewriting(2, 2, shown),
    "to_varchar": Rewriting(2, 2, shown),
    "space": Rewriting(1, 1, _space),
    "xxhash64": Rewriting(1, None, _hash("xxhash64", BIGINT)),
    **{name: Rewriting(2, 3, _locate) for name in ("charindex", "locate", "position")},
}


def trimmed(side: str, text: Expr, characters: Expr | None) -> Expr:
    """Typed ``TRIM(side characters FROM text)``; ``side``: BOTH, LEADING or TRAILING."""
    op = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
    return Signature(op, (_T, _T), STRING, least=1, rest=(_SPACE,))(
        [text] if characters is None else [text, characters]
    )
