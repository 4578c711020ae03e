"""The README's snippets run, and its commands and options exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tunerplugin.cli import VERBS, build_parser

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.S | re.M)
# Those for a TVM with Relay run in its environment (tests/relay/test_readme.py).
PYTHON = [snippet for snippet in SNIPPETS if "relay" not in snippet]


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_python_snippets_run_in_order(tmp_path: Path) -> None:
    assert len(PYTHON) >= 2
    for number, snippet in enumerate(PYTHON):
        script = tmp_path / f"snippet{number}.py"
        script.write_text(
            f"if __name__ == '__main__':\n    {snippet.replace(chr(10), chr(10) + '    ')}"
        )
        done = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "records.sqlite").is_file()


def test_first_example_is_ten_lines() -> None:
    lines = [line for line in PYTHON[0].splitlines() if line.strip()]
    assert len(lines) <= 10


def test_every_verb_is_described_and_no_other() -> None:
    described = set(re.findall(r"^\| `tunerplugin (\w+)", README, flags=re.M))
    assert described == set(VERBS)


def test_every_option_exists() -> None:
    known: set[str] = set()
    parsers = [build_parser()]
    while parsers:
        parser = parsers.pop()
        known |= set(parser.option_names())
        for action in parser._actions:
            if isinstance(action.choices, dict):
                parsers += list(action.choices.values())
    for script in (ROOT / "examples").rglob("*.py"):
        known |= set(re.findall(r"\"(--[a-z][a-z-]*)\"", script.read_text(encoding="utf-8")))
    ours = re.sub(r"pip install .*", "", README)  # pip has options of its own
    assert set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", ours)) <= known


def test_first_command_and_test_command_are_there() -> None:
    commands = re.findall(r"^    (python3 -m venv .*)$", README, flags=re.M)
    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/tunerplugin demo",
        "python3 -m venv .venv-test && .venv-test/bin/pip install '.[test]'"
        " && .venv-test/bin/python -m pytest",
    ]
    assert commands[1] in ci_commands()


def ci_commands() -> list[str]:
    """What ``.ci/run`` takes out of the README."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    match = re.search(r"^command=\$\((.*)\)$", script, flags=re.M)
    assert match
    done = subprocess.run(
        ["bash", "-c", match[1]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
