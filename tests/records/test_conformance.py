"""Both of our stores keep the contract that third-party stores are held to."""

from __future__ import annotations

from pathlib import Path

from tunerplugin.records import MemoryStore, RecordStore, SQLiteStore
from tunerplugin.testing import RecordStoreConformance


class TestMemoryStore(RecordStoreConformance):
    def make_store(self, tmp_path: Path) -> RecordStore:
        return MemoryStore()


class TestSQLiteStore(RecordStoreConformance):
    def make_store(self, tmp_path: Path) -> RecordStore:
        return SQLiteStore(tmp_path / "records.db")
