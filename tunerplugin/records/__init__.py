"""The record store: the truth about everything that was measured.  Imports neither torch nor tvm.

``SQLiteStore`` keeps; ``check`` verifies; ``export_jsonl`` / ``import_jsonl`` move records between
machines; ``export_t4`` / ``import_t4`` and ``export_autotvm`` / ``import_autotvm`` speak to other
tuners.
"""

from .autotvm import export_autotvm, import_autotvm
from .check import CheckReport, check
from .foreign import IMPORTED, UNKNOWN_DEVICE, ForeignReport, kind_of
from .jsonl import ImportReport, export_jsonl, import_jsonl
from .record import Record, Run, TaskKey, Workload
from .sqlite import SQLiteStore
from .store import STORE_NAME, MemoryStore, RecordStore
from .tuningschema import T4Row, export_t4, import_t4

__all__ = [
    "IMPORTED",
    "STORE_NAME",
    "UNKNOWN_DEVICE",
    "CheckReport",
    "ForeignReport",
    "ImportReport",
    "MemoryStore",
    "Record",
    "RecordStore",
    "Run",
    "SQLiteStore",
    "T4Row",
    "TaskKey",
    "Workload",
    "check",
    "export_autotvm",
    "export_jsonl",
    "export_t4",
    "import_autotvm",
    "import_jsonl",
    "import_t4",
    "kind_of",
]
