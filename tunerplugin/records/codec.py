"""Records as canonical JSON text with a digest, the form that every store and file shares.

The digest covers the key as well as the record, so that neither a flipped bit nor a record that
slid to another task goes unnoticed.  Nothing here evaluates or unpickles what it reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ..errors import RecordError
from ..outcome import Outcome, Status
from .record import Record, TaskKey, Workload

DIGEST_BYTES = 16


def dump(value: object) -> str:
    """Canonical JSON: ASCII, sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def load(text: str | bytes) -> Any:
    """Parse JSON text; raises ``RecordError`` for anything that is not."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"expected JSON text, got {text[:40]!r} ({error})") from error


def key_text(key: TaskKey) -> str:
    """The key as a canonical JSON array: workload, target, device, compiler, space."""
    return dump([key.workload, key.target, key.device, key.compiler, key.space])


def record_text(record: Record) -> str:
    """Everything of a record but its key, as a canonical JSON object."""
    return dump(
        {
            "elapsed_s": float(record.elapsed_s),
            "method": record.method,
            "reason": record.outcome.reason,
            "samples_s": [float(s) for s in record.outcome.samples_s],
            "seed": record.seed,
            "status": record.outcome.status.value,
            "trace": record.trace,
            "trial": record.trial,
            "values": record.values,
            "wall_s": float(record.outcome.wall_s),
        }
    )


def digest(*texts: str) -> bytes:
    """A 16-byte fingerprint of the texts in order (SHA-256, cut)."""
    return hashlib.sha256(dump(texts).encode()).digest()[:DIGEST_BYTES]


def record_digest(record: Record) -> bytes:
    """The identity of a record: equal exactly when every field is."""
    return digest(key_text(record.key), record_text(record))


def workload_digest(workload: Workload) -> bytes:
    """The fingerprint of a workload."""
    return digest(workload.key, workload.name, workload.module)


def decode_key(text: str) -> TaskKey:
    """Inverse of ``key_text``; raises ``RecordError``."""
    fields = load(text)
    if not isinstance(fields, list) or len(fields) != 5:
        raise RecordError(f"expected a key of five strings, got {text[:80]!r}")
    return TaskKey(*fields)


def decode_info(text: str) -> dict[str, str]:
    """Run information from its JSON text; raises ``RecordError``."""
    info = load(text)
    if not isinstance(info, dict) or not all(isinstance(value, str) for value in info.values()):
        raise RecordError(f"expected run information as an object of strings, got {text[:80]!r}")
    return info


def decode_record(key: TaskKey, text: str, expected_digest: bytes | None = None) -> Record:
    """Inverse of ``record_text``; raises ``RecordError`` when the text or its digest is wrong."""
    if expected_digest is not None and digest(key_text(key), text) != expected_digest:
        raise RecordError("expected a record that fits its digest, got an altered one")
    fields = load(text)
    if not isinstance(fields, Mapping) or not isinstance(fields.get("values"), list):
        raise RecordError(f"expected a record object, got {text[:80]!r}")
    try:
        outcome = Outcome(
            Status(fields["status"]),
            tuple(fields["samples_s"]),
            fields["reason"],
            fields["wall_s"],
        )
        return Record(
            key,
            tuple(fields["values"]),
            outcome,
            fields["method"],
            fields["seed"],
            fields["trial"],
            fields["elapsed_s"],
            fields["trace"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"expected a complete record, got {text[:80]!r} ({error!r})") from error
