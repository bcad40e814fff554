"""Reading of text files: UTF-8, with or without a byte order mark."""

from __future__ import annotations

import codecs
from pathlib import Path

from anabranch_client.errors import UsageError

#: Byte order marks of other encodings, the longest first.
_OTHERS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def read_utf8(path: Path, field: str = "", kind: str = "text") -> str:
    """The text of a file without its byte order mark.

    Args:
        field: the option that names the file.
        kind: kind of file, for the remedy.

    Raises:
        UsageError: the file can't be read, or is in another encoding.
    """
    try:
        data = path.read_bytes()
    except OSError as cause:
        raise UsageError(
            f"cannot read {path}: {cause.strerror or cause}",
            field=field,
            remedy=f"name a {kind} file",
        ) from cause
    encoding = next((name for mark, name in _OTHERS.items() if data.startswith(mark)), None)
    try:
        if encoding is None:
            # Line ends become \n, as in files opened in text mode.
            text = data.decode("utf-8-sig")
            return text.replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as cause:
        raise _not_utf8(path, field, f"byte {cause.start} is none of it") from cause
    raise _not_utf8(path, field, f"it is {encoding}")


def _not_utf8(path: Path, field: str, why: str) -> UsageError:
    return UsageError(
        f"{path} is not UTF-8 text: {why}", field=field, remedy="save it as UTF-8, and try again"
    )
