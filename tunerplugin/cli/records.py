"""``tunerplugin records``: look at, move and verify what was measured."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..records import (
    STORE_NAME,
    UNKNOWN_DEVICE,
    ForeignReport,
    RecordStore,
    SQLiteStore,
    TaskKey,
    check,
    export_autotvm,
    export_jsonl,
    export_t4,
    import_autotvm,
    import_jsonl,
    kind_of,
)
from . import exits, options, render
from .exits import StopGuard
from .parser import Parser

FORMATS = ("metaschedule", "t4", "jsonl", "autotvm")

_IMPORT = (
    "Add records to a work directory: a JSONL export; an AutoTVM log (JSON lines); a MetaSchedule "
    "database of an older TVM (its folder, or its database_tuning_record.json with the file of "
    "workloads beside it). The last two may be packed (.xz, .gz). What can no longer be used is "
    "counted by reason; tune on this work directory starts from what can."
)


def add_parser(add: Callable[..., Parser]) -> Parser:
    """Declare the verb and its four actions."""
    verb = add("records", help="list, export, import or check records")
    actions = verb.add_subparsers(
        dest="action",
        metavar="{list,export,import,check}",
        required=True,
        parser_class=Parser,
    )
    for name, run_action, text in (
        ("list", _list, "show the tasks with their best latency"),
        ("export", _export, "write the records in another format"),
        ("import", _import, "add the records of a JSONL export or of another tuner"),
        ("check", _check, "read every record; exit code 1 when one is damaged"),
    ):
        action: Parser = actions.add_parser(
            name, parents=[options.common()], help=text, description=text
        )
        action.add_argument("work_dir", type=Path, metavar="WORK_DIR", help="of a tune run")
        action.set_defaults(run_action=run_action, parser=action)
        if name == "export":
            action.add_argument("--to", required=True, choices=FORMATS, help="format of OUT")
            out_help = "file (metaschedule: directory) to write"
            action.add_argument("out", type=Path, metavar="OUT", help=out_help)
        if name == "import":
            action.description = _IMPORT
            action.add_argument("file", type=Path, metavar="FILE", help="of any of these formats")
            device_help = f"machine of another tuner's records (default: {UNKNOWN_DEVICE})"
            action.add_argument("--device", default=UNKNOWN_DEVICE, help=device_help)
    return verb


def run(args: argparse.Namespace, guard: StopGuard) -> int:
    """Carry out one action."""
    code: int = args.run_action(args)
    return code


def store_path(work_dir: Path) -> Path:
    """The record file of a work directory.

    Raises ``InputError`` when there is none.
    """
    path = work_dir / STORE_NAME
    if not path.is_file():
        raise InputError(
            f"expected the work directory of a tune run, got {str(work_dir)!r} "
            f"without {STORE_NAME}; check the path"
        )
    return path


def best_latencies_s(store: RecordStore, key: TaskKey) -> dict[str, float | None]:
    """The lowest latency in seconds of each method that measured ``key``."""
    latencies_s: dict[str, list[float]] = {}
    for record in store.records(key):
        of_method = latencies_s.setdefault(record.method, [])
        if record.outcome.latency_s is not None:
            of_method.append(record.outcome.latency_s)
    return {method: min(found, default=None) for method, found in latencies_s.items()}


def _list(args: argparse.Namespace) -> int:
    tasks: list[dict[str, Any]] = []
    with SQLiteStore(store_path(args.work_dir), read_only=True) as store:
        names = {workload.key: workload.name for workload in store.workloads()}
        for key, count in store.tasks().items():
            statuses = Counter(record.outcome.status.value for record in store.records(key))
            tasks.append(
                {
                    "task": names.get(key.workload, key.workload),
                    "target": key.target,
                    "device": key.device,
                    "compiler": key.compiler,
                    "space": key.space,
                    "records": count,
                    "statuses": dict(statuses),
                    "best_s": best_latencies_s(store, key),
                }
            )
    rows = []
    for task in tasks:
        known = [latency for latency in task["best_s"].values() if latency is not None]
        failed = task["records"] - task["statuses"].get("ok", 0)
        untuned = render.duration(task["best_s"].get("untuned"))
        best = render.duration(min(known, default=None))
        rows.append((task["task"], task["device"], task["records"], failed, untuned, best))
    headers = ("task", "device", "records", "failed", "untuned", "best")
    document = {"verb": "records list", "work_dir": str(args.work_dir), "tasks": tasks}
    render.emit(args.format, document, render.table(headers, rows))
    return exits.DONE


def _export(args: argparse.Namespace) -> int:
    with SQLiteStore(store_path(args.work_dir), read_only=True) as store:
        if args.to == "jsonl":
            count = export_jsonl(store, args.out)
        elif args.to == "autotvm":
            count = export_autotvm(store, args.out)
        elif args.to == "t4":
            with render.stdout_to_stderr():
                from ..integrations.metaschedule import knob_names

                count = export_t4(store.records(), args.out, knob_names(store))
        else:
            with render.stdout_to_stderr():
                from ..integrations.metaschedule import export_database

                count = export_database(store, str(options.make_work_dir(args.out, "OUT")))
    document = {"verb": "records export", "to": args.to, "out": str(args.out), "records": count}
    render.emit(args.format, document, f"{count} records written to {args.out}")
    return exits.DONE


def _import(args: argparse.Namespace) -> int:
    if not args.file.exists():
        raise InputError(
            f"expected a file of records to import, got {str(args.file)!r}, which is not there; "
            "check the path"
        )
    kind = kind_of(args.file)
    if kind != "jsonl":
        return _import_foreign(args, kind)
    with SQLiteStore(options.make_work_dir(args.work_dir, "WORK_DIR") / STORE_NAME) as store:
        report = import_jsonl(args.file, store)
    damaged = list(report.damaged_lines)
    document = {
        "verb": "records import",
        "work_dir": str(args.work_dir),
        "kind": kind,
        "added": report.added,
        "present": report.present,
        "damaged_lines": damaged,
    }
    text = f"{report.added} records added, {report.present} were there already"
    if damaged:
        text += f", {len(damaged)} damaged lines left out"
    render.emit(args.format, document, text)
    return exits.FAILED if damaged else exits.DONE


def _import_foreign(args: argparse.Namespace, kind: str) -> int:
    """Another tuner's records; exit code 1 when none of them can be used."""
    with SQLiteStore(options.make_work_dir(args.work_dir, "WORK_DIR") / STORE_NAME) as store:
        store.start_run({"imported": args.file.name, "kind": kind, "device": args.device})
        report = _read_foreign(args, kind, store)
    document = {
        "verb": "records import",
        "work_dir": str(args.work_dir),
        "kind": kind,
        "added": report.added,
        "present": report.present,
        "failed": report.failed,
        "left_out": dict(report.left_out.most_common()),
    }
    lines = [f"{report.added} records added, {report.present} were there already"]
    if report.failed:
        lines[0] += f"; {report.failed} of those added are candidates that failed"
    lines += [f"{count} left out: {why}" for why, count in report.left_out.most_common()]
    render.emit(args.format, document, "\n".join(lines))
    return exits.DONE if report.added or report.present else exits.FAILED


def _read_foreign(args: argparse.Namespace, kind: str, store: RecordStore) -> ForeignReport:
    if kind == "autotvm":
        return import_autotvm(args.file, store, args.device)
    with render.stdout_to_stderr():
        from ..integrations.metaschedule.old_database import import_database

        return import_database(args.file, store, args.device)


def _check(args: argparse.Namespace) -> int:
    report = check(store_path(args.work_dir))
    document = {
        "verb": "records check",
        "work_dir": str(args.work_dir),
        "ok": report.ok,
        "records": report.records,
        "workloads": report.workloads,
        "damaged_records": list(report.damaged_records),
        "damaged_workloads": list(report.damaged_workloads),
        "problems": list(report.problems),
    }
    lines = [f"{report.records} records and {report.workloads} workloads are sound"]
    for what, rows in (
        ("record", report.damaged_records),
        ("workload", report.damaged_workloads),
    ):
        lines += [f"damaged {what} in row {row}" for row in rows]
    lines += list(report.problems)
    render.emit(args.format, document, "\n".join(lines))
    return exits.DONE if report.ok else exits.FAILED
