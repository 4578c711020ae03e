"""Which part may import which (design: arrows go one way)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOTTOM = {"environment", "errors", "outcome"}
# Part of the package -> parts it may import, besides itself; parts that are not named are free.
MAY_IMPORT: dict[str, set[str]] = {
    "environment": set(),
    "errors": set(),
    "outcome": set(),
    "backend": {"hw"},
    "space": BOTTOM,
    "records": BOTTOM | {"space"},
    "predictor": BOTTOM | {"space", "records", "search"},
    "search": BOTTOM | {"space", "records", "predictor"},
    "measure": BOTTOM,
    "models": BOTTOM,
    "autotvm": BOTTOM | {"integrations"},
    "sources": BOTTOM | {"space", "records", "predictor", "search"},
    "testing": BOTTOM | {"space", "records", "search"},
    "integrations": BOTTOM
    | {"space", "records", "predictor", "search", "measure", "schedules", "hw"},
    "schedules": BOTTOM | {"space", "hw", "measure"},
    "hw": BOTTOM | {"space"},
}
# The file that knows TVM generations imports no part but the errors: these may ask it.
LEAF = dict.fromkeys(("schedules", "measure", "models"), "integrations.compat")
FORBIDDEN_OUTSIDE: dict[str, set[str]] = {
    "space": {"tvm", "tvm_ffi", "torch"},
    "records": {"tvm", "tvm_ffi", "torch"},
    "predictor": {"tvm", "tvm_ffi"},
    "search": {"tvm", "tvm_ffi", "torch"},
    "sources": {"tvm", "tvm_ffi", "torch"},
}


def part_files(part: str) -> list[Path]:
    top = ROOT / part if part in {"schedules", "hw"} else ROOT / "tunerplugin" / part
    return sorted(top.rglob("*.py")) if top.is_dir() else [top.with_suffix(".py")]


def imports(file: Path, part: str) -> set[str]:
    """Absolute dotted names that a file imports, inside functions too."""
    module = ["tunerplugin", *file.relative_to(ROOT).parts]
    if module[1] == "tunerplugin":
        del module[1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module[: len(module) - node.level] if node.level else []
            name = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{name}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_imports_of(part: str) -> None:
    files = part_files(part)
    assert files
    for file in files:
        for name in imports(file, part):
            top, _, rest = name.partition(".")
            assert top not in FORBIDDEN_OUTSIDE.get(part, set()), f"{file} imports {name}"
            assert top not in {"schedules", "hw"}, f"{file}: write tunerplugin.{name}"
            if top == "tunerplugin" and rest and not rest.startswith(LEAF.get(part, "\0")):
                inner = rest.partition(".")[0]
                allowed = MAY_IMPORT[part] | {part}
                assert inner in allowed, f"{file} imports {name}; {part} may import {allowed}"


def test_the_leaf_is_one() -> None:
    names = imports(ROOT / "tunerplugin" / "integrations" / "compat.py", "integrations")
    ours = {name for name in names if name.startswith("tunerplugin.")}
    allowed = ("tunerplugin.errors", "tunerplugin.integrations.alias_tags")
    assert all(name.startswith(allowed) for name in ours)
    repair = imports(ROOT / "tunerplugin" / "integrations" / "alias_tags.py", "integrations")
    assert not any(name.startswith("tunerplugin.") for name in repair)


def test_every_part_is_known() -> None:
    parts = {
        path.stem
        for path in (ROOT / "tunerplugin").iterdir()
        if path.suffix == ".py" or (path.is_dir() and list(path.glob("*.py")))
    }
    assert parts - {"__init__", "__main__", "cli"} == set(MAY_IMPORT) - {"schedules", "hw"}


def test_top_level_is_the_users() -> None:
    allowed = {"setup.cfg", "setup.py", "README.md", "LICENSE", "conftest.py"}
    allowed |= {"tunerplugin", "schedules", "hw", "tests", "examples"}
    import subprocess

    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    tops = {name.partition("/")[0] for name in listed}
    assert {top for top in tops if not top.startswith(".")} <= allowed
