"""The host's target runs on the host, whatever the hypervisor hides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.measure import kernels
from tunerplugin.measure import (
    Measurer,
    MeasureTask,
    Request,
    available_cores,
    device_name,
    host,
    host_target,
)


def test_code_for_the_host_target_runs(measurer: Measurer) -> None:
    untuned, tuned = kernels.matmul_with_vectors()
    task = MeasureTask("host", untuned, json.dumps(host_target(2)))
    ((_, outcome),) = measurer.measure(task, [Request(0, tuned)])
    assert outcome.ok, outcome.reason


def test_no_known_feature_that_the_cpu_lacks_stays_on() -> None:
    from tvm.target import Target, codegen

    flags = host._cpu_flags()
    target = host_target(num_cores=3)
    assert target["kind"] == "llvm" and target["num-cores"] == 3
    on = {str(f) for f in codegen.llvm_get_cpu_features(Target(target))}
    assert not flags or host.masked_features(on, flags) == []


def test_features_are_masked_by_their_linux_names() -> None:
    features = {"avx2", "avx512f", "avx512vnni", "bmi", "lzcnt", "sse4.2", "fast-11bytenop"}
    assert host.masked_features(features, {"avx2", "bmi1", "abm", "sse4_2"}) == [
        "-avx512f",
        "-avx512vnni",
    ]
    assert host.masked_features(features, {"avx2", "avx512f", "avx512_vnni", "abm"}) == [
        "-bmi",
        "-sse4.2",
    ]


V2 = set("cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3".split())
V3 = V2 | set("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave".split())


def test_a_cpu_that_llvm_does_not_know_counts_as_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    v4 = V3 | set("avx512f avx512bw avx512cd avx512dq avx512vl".split())
    assert host.x86_level(v4 | {"amx_tile"}) == "x86-64-v4"
    assert host.x86_level(v4 - {"avx512cd"}) == "x86-64-v3"
    assert host.x86_level(v4 - {"fma"}) == "x86-64-v2"  # a level needs all that lie below
    assert host.x86_level(V3 - V2) == host.x86_level(set()) == ""
    monkeypatch.setattr("tvm.target.codegen.llvm_get_system_cpu", lambda: "generic")
    monkeypatch.setattr(host, "_cpu_flags", lambda: V3)
    assert host_target()["mcpu"] == "x86-64-v3" and "mattr" not in host_target()
    monkeypatch.setattr(host, "_cpu_flags", lambda: {"neon"})
    assert host_target()["mcpu"] == "generic"


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 6), ("150000 100000", 2), ("50000 100000", 1), ("", 6)]
)
def test_cores_respect_affinity_threads_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    for cpu in range(12):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text(f"{cpu % 6}\n")
    monkeypatch.setattr(host, "_CGROUP_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(host, "_CPU_TOPOLOGY", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(12)), raising=False)
    assert available_cores() == cores


def test_device_name_is_stable_and_tells_models_and_cores_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device_name() == device_name() and device_name(3) != device_name(4)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD  EPYC\nflags\t: avx\n")
    monkeypatch.setattr(host, "_CPUINFO", cpuinfo)
    assert device_name(2) == "AMD EPYC (family 25 model 17) x2"
    monkeypatch.setattr(host, "_CPUINFO", tmp_path / "none")
    assert device_name(2).endswith(" x2") and len(device_name(2)) > len(" x2")
