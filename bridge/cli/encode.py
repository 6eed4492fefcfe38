"""Encodes a message as a line of output: the body alone, or JSON that keeps every byte."""

from __future__ import annotations

import base64
import json
from typing import Any

#: A message in the node's answer (contract: GET .../messages).
Message = dict[str, Any]


def encode_text(message: Message) -> bytes:
    """The body and a newline; a tombstone is an empty line."""
    return bytes(message_bytes(message) or b"") + b"\n"


def encode_json(message: Message) -> bytes:
    """A JSON line; bodies, keys, header values and IDs that are no UTF-8 text appear as base64."""
    shown: dict[str, Any] = {"position": message["position"]}
    body = message_bytes(message)
    text = _as_text(body)
    if "body-size" not in message:  # else the body is too large for the page
        shown |= {"body": text} if text is not None or body is None else {"body-base64": _base64(body)}
    for name, value in message.items():
        if name not in {"position", "body", "body-base64"}:
            shown[name] = _as_json(value)
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def message_bytes(message: Message) -> bytes | None:
    """The body as bytes, in either form of the answer; None for a tombstone."""
    if message.get("body-base64") is not None:
        return base64.b64decode(message["body-base64"])
    body = message.get("body")
    return body.encode() if isinstance(body, str) else body


def _as_text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        text = _as_text(value)
        return {"base64": _base64(value)} if text is None else text
    if isinstance(value, dict):
        return {_as_json(name): _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value
