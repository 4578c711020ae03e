"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ..errors import RecordError


@contextmanager
def replaced(path: Path) -> Iterator[TextIO]:
    """A text file that takes its name when the block ends well; else the old file stays.

    Raises ``RecordError`` when it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with open(draft, "w", encoding="ascii", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror}; an older file of that name is unchanged"
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
