"""Reading Kernel Tuner's JSON files without trusting them."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from pathlib import Path
from typing import Any

from ...errors import InputError, TunerError
from ...space import Value

MAX_BYTES = 1 << 30
"""Of text in one file; what a compressed file unpacks to beyond that is not read."""


def read_text(path: Path, error: type[TunerError]) -> str:
    """The text of a plain or gzip-compressed file.

    Raises ``InputError`` when there is no such file or it may not be read, and ``error`` when it is
    damaged, no text or too large.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            data: bytes = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise error(f"expected at most {MAX_BYTES} bytes in {path}, got more: split the file")
        return data.decode("utf-8")
    except (gzip.BadGzipFile, EOFError, zlib.error) as reason:
        raise error(
            f"expected a whole gzip file at {path}, got a damaged one ({reason}): fetch it again"
        ) from reason
    except UnicodeDecodeError as reason:
        raise error(f"expected UTF-8 text in {path}, got {reason}: fetch it again") from reason
    except OSError as reason:
        raise InputError(
            f"expected a readable file at {path}, got {reason.strerror or reason}: check the path"
        ) from reason


def parse_json(text: str, path: Path, error: type[TunerError]) -> Any:
    """Parsed JSON; raises ``error``, naming the place, for what is none."""
    try:
        return json.loads(text)
    except RecursionError as reason:
        raise error(f"expected flat JSON in {path}, got a deeply nested one") from reason
    except ValueError as reason:
        raise error(f"expected whole JSON in {path}, got {reason}: fetch it again") from reason


def parameter_value(raw: Any) -> Value | None:
    """A parameter's value as ours: booleans as 0 and 1; ``None`` for what is no value."""
    if isinstance(raw, (bool, int)):
        return int(raw)
    if isinstance(raw, str) or (isinstance(raw, float) and math.isfinite(raw)):
        return raw
    return None
