"""A process that appends and says so: ``appender.py PATH METHOD COUNT [FSIZE_BYTES]``.

Prints each trial number after ``append`` returned.  With a size limit it prints the error of the
first refused append, then what it can still read, and then appends once more without the limit.
"""

from __future__ import annotations

import resource
import sys

from tunerplugin.errors import RecordError
from tunerplugin.records import SQLiteStore
from tunerplugin.testing.records import make_record


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(path: str, method: str, count: int, limit_bytes: int | None) -> None:
    with SQLiteStore(path) as store:
        if limit_bytes is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
        for trial in range(count):
            try:
                store.append(make_record(trial, method=method))
            except RecordError as error:
                say(f"refused {error}")
                say(f"readable {len(list(store.records()))}")
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
                store.append(make_record(trial, method=method))
                say(f"appended {trial}")
                return
            say(trial)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if sys.argv[4:] else None)
