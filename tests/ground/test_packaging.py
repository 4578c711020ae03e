"""What a wheel, an sdist and an editable install hold, and that they answer to the same names."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("tunerplugin", "schedules", "hw", "setup.cfg", "setup.py", "README.md", "LICENSE")
# Run in a folder that has an hw.py of the user's own.
PROBE = """
import sys
import tunerplugin, tunerplugin.hw, tunerplugin.schedules
from importlib.metadata import entry_points
assert tunerplugin.hw.__file__.startswith({root!r}), tunerplugin.hw.__file__
assert tunerplugin.schedules.__file__.startswith({root!r}), tunerplugin.schedules.__file__
assert "hw" not in sys.modules and "schedules" not in sys.modules
(entry,) = {{e for e in entry_points(group="tvm.backends") if e.name == "tunerplugin"}}
entry.load()()
import hw
assert hw.MINE
"""


def run(*command: str, cwd: Path) -> str:
    """Run a command outside the checkout's import path; its output, or the failure's."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(cwd: Path, *arguments: str) -> str:
    return run(sys.executable, "-m", "pip", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged: building writes into the source folder."""
    copy = tmp_path_factory.mktemp("source") / "tree"
    copy.mkdir()
    for name in SOURCES:
        origin = ROOT / name
        if origin.is_dir():
            shutil.copytree(origin, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip(source, "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(out), ".")
    (built,) = out.glob("*.whl")
    return built


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def fresh_venv(folder: Path) -> Path:
    """An environment of its own that sees the packages of this one, but not ``tunerplugin``."""
    run(sys.executable, "-m", "venv", "--without-pip", str(folder), cwd=folder.parent)
    python = folder / "bin" / "python"
    shared = folder / "shared"
    shared.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "tunerplugin" not in entry.name:
            (shared / entry.name).symlink_to(entry)
    command = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = Path(run(str(python), "-c", command, cwd=folder.parent).strip())
    (site / "shared.pth").write_text(f"{shared}\n")
    return python


def test_packages_are_all_listed() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options"]["packages"].split()
    found = set()
    for top, name in (("tunerplugin", ""), ("schedules", "tunerplugin."), ("hw", "tunerplugin.")):
        for file in (ROOT / top).rglob("*.py"):
            if "__pycache__" not in file.parts:
                found.add(name + ".".join(file.parent.relative_to(ROOT).parts))
    assert set(listed) == found
    assert len(listed) == len(set(listed))


def test_packages_have_an_init() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    mapped = dict(
        line.split(" = ") for line in config["options"]["package_dir"].split("\n") if line
    )
    for package in config["options"]["packages"].split():
        folder = package
        for prefix in sorted(mapped, key=len, reverse=True):
            if package == prefix or package.startswith(prefix + "."):
                folder = mapped[prefix] + package[len(prefix) :].replace(".", "/")
                break
        assert (ROOT / folder / "__init__.py").is_file(), package


def test_wheel_holds_every_module_under_its_import_name(wheel: Path) -> None:
    packed = names(wheel)
    for top, prefix in (("tunerplugin", ""), ("schedules", "tunerplugin/"), ("hw", "tunerplugin/")):
        for file in (ROOT / top).rglob("*"):
            if file.suffix in {".py", ".typed", ".safetensors"}:
                assert prefix + file.relative_to(ROOT).as_posix() in packed
    assert not any(name.startswith(("hw/", "schedules/", "tests/")) for name in packed)
    assert any(name.endswith("licenses/LICENSE") for name in packed)


def test_sdist_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    run(sys.executable, "-c", build, cwd=source)
    (sdist,) = tmp_path.glob("*.tar.gz")
    arguments = (
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
        str(sdist),
    )
    pip(tmp_path, *arguments)
    (rebuilt,) = tmp_path.glob("*.whl")
    assert names(rebuilt) == names(wheel)


@pytest.mark.parametrize("how", ["wheel", "editable"])
def test_installed_names(how: str, source: Path, wheel: Path, tmp_path: Path) -> None:
    python = fresh_venv(tmp_path / "venv")
    what = [str(wheel)] if how == "wheel" else ["--no-build-isolation", "-e", str(source)]
    pip(tmp_path, "--python", str(python), "install", "-q", "--no-deps", *what)
    user = tmp_path / "user"
    user.mkdir()
    (user / "hw.py").write_text("MINE = True\n")
    root = tmp_path / "venv" if how == "wheel" else source
    run(
        str(python),
        "-c",
        "import sys; sys.path.insert(0, '')" + PROBE.format(root=str(root)),
        cwd=user,
    )
    script = str(python.parent / "tunerplugin")
    assert "demo" in run(script, "--help", cwd=user)
    assert run(script, "--version", cwd=user) == run(
        str(python), "-m", "tunerplugin", "--version", cwd=user
    )


def test_bare_checkout_has_the_installed_names() -> None:
    import tunerplugin.hw
    import tunerplugin.schedules

    assert Path(tunerplugin.hw.__file__ or "").parent == ROOT / "hw"
    assert Path(tunerplugin.schedules.__file__ or "").parent == ROOT / "schedules"
