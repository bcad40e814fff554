"""Signatures of requests by Standard Webhooks (standardwebhooks.com), symmetric version 1.

>>> keys = keys_of("whsec_" + base64.b64encode(b"k" * 24).decode())
>>> signature(keys, "msg_1", 1700000000, b"{}")
'v1,E3sCg9uS8x43RKlJqcda1EcaYZxNkN+l2u7RBZBSZQQ='
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from anabranch_runtime.errors import SinkError

#: Prefix of a secret; the rest is the key in Base64.
PREFIX = "whsec_"
#: Minimum and maximum bytes of a key.
_FEWEST, _MOST = 24, 64


def keys_of(secret: str) -> list[bytes]:
    """Return the keys in a webhook's secret: several, separated by spaces, while keys are rotated.

    Raises:
        SinkError: the secret has another form.
    """
    keys = []
    for text in secret.split():
        try:
            key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if not text.startswith(PREFIX) or not _FEWEST <= len(key) <= _MOST:
            raise SinkError(
                "bad-secret",
                "the secret of the webhook is no signing key",
                field="sink.options.secret",
                remedy=f"set its variable to {PREFIX} and the Base64 of {_FEWEST} to {_MOST} random"
                " bytes; several keys are separated by spaces",
            )
        keys.append(key)
    return keys


def signature(keys: Sequence[bytes], ident: str, timestamp: int, body: bytes) -> str:
    """Return the header ``webhook-signature`` of a request that is sent at ``timestamp`` (s)."""
    content = b".".join((ident.encode(), str(timestamp).encode(), body))
    digests = (hmac.digest(key, content, hashlib.sha256) for key in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
