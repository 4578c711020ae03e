"""Frames between the measurer and its workers: JSON plus raw bytes, each with its length in front.

No pickle: a worker runs untrusted generated code, and nothing that it can write into the pipe is
ever executed by the parent.
"""

from __future__ import annotations

import json
import struct
from typing import IO, Any

Message = dict[str, Any]

_LENGTHS = struct.Struct("<IQ")
_MAX_JSON_BYTES = 1 << 30
_MAX_PAYLOAD_BYTES = 1 << 38


class ProtocolError(Exception):
    """The bytes in the pipe are not a frame."""


def write_frame(stream: IO[bytes], message: Message, payload: bytes = b"") -> None:
    """Write one frame and flush it."""
    text = json.dumps(message).encode()
    stream.write(_LENGTHS.pack(len(text), len(payload)))
    stream.write(text)
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[Message, bytes]:
    """Read one frame.  Raises ``EOFError`` at the end, ``ProtocolError`` on anything else."""
    text_length, payload_length = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
    if text_length > _MAX_JSON_BYTES or payload_length > _MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"expected a frame, got lengths {text_length} and {payload_length}")
    text = _exactly(stream, text_length)
    payload = _exactly(stream, payload_length)
    try:
        message = json.loads(text)
    except ValueError as error:
        raise ProtocolError(f"expected JSON in a frame, got {text[:40]!r}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"expected a JSON object in a frame, got {text[:40]!r}")
    return message, payload


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count) if count else b""
    if len(data) < count:
        raise EOFError("the other side closed the pipe")
    return data
