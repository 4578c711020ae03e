"""Compiles TIR for AMD GPUs and prints the assembly: the program that ``offline.amd`` starts.

A child process, because LLVM ends the process it runs in when a kernel asks for too much LDS.  It
needs no ROCm: TVM's own LLVM has the back end, and nothing is linked.  It imports TVM alone, so
that it runs from its file whichever way the package is installed.

Input: a JSON list of jobs {"module": TVM's JSON of an IRModule, "target": {...}, "threads": most
work-items of a work-group}.  Output: for each job one JSON line, {"assembly": ...} or
{"error": ...}, as soon as it is done.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_BITCODE, _LINK = "tvm_callback_rocm_bitcode_path", "tvm_callback_rocm_link"
_THREADS = re.compile(r'"amdgpu-flat-work-group-size"="1,\d+"')
_TRIPLE = "amdgcn-amd-amdhsa-hcc"


@contextmanager
def without_rocm() -> Iterator[None]:
    """TVM's two callbacks into a ROCm installation replaced: no device library, no linking.

    Kernels here call none of the device library's functions; for the linker's shared object stands
    the object file, which nothing loads.
    """
    import tvm
    import tvm.support.rocm  # registers the two
    import tvm_ffi

    kept = {name: tvm_ffi.get_global_func(name) for name in (_BITCODE, _LINK)}

    def no_bitcode(*_: Any) -> Any:
        return tvm.runtime.convert([])

    def unlinked(built: Any) -> bytearray:
        return bytearray(bytes(built))

    try:
        tvm_ffi.register_global_func(_BITCODE, no_bitcode, override=True)
        tvm_ffi.register_global_func(_LINK, unlinked, override=True)
        yield
    finally:
        for name, function in kept.items():
            tvm_ffi.register_global_func(name, function, override=True)


def assembly(module: str, target: Mapping[str, Any], threads: int) -> str:
    """The assembly of the module's device code.

    Without a device TVM tells LLVM that work-groups have at most 256 work-items; with one it tells
    what the device takes, 1024.  That number decides how many registers a work-item may have, so it
    is put right in LLVM's text, which TVM reads back and compiles.
    """
    import tvm

    built = tvm.compile(tvm.ir.load_json(module), target=tvm.target.Target(dict(target)))
    text = _THREADS.sub(
        f'"amdgpu-flat-work-group-size"="1,{threads}"',
        built.mod.imports[0].inspect_source("llvm"),
    )
    names = (int(number) for number in re.findall(r"^!(\d+) = ", text, re.MULTILINE))
    number = max(names, default=-1) + 1
    llvm = {"kind": "llvm", "mtriple": _TRIPLE, "mcpu": target["mcpu"]}
    quoted = json.dumps(llvm).replace('"', "\\22")
    text += f"\n!llvm.module.flags = !{{!{number}}}\n"
    text += f'!{number} = !{{i32 2, !"tvm_target", !"{quoted}"}}\n'
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ll"
        file.write_text(text, encoding="utf-8")
        return str(tvm.runtime.load_module(str(file)).inspect_source("asm"))


def main() -> None:
    """Read jobs from standard input, write results to standard output."""
    jobs = json.load(sys.stdin)
    with without_rocm():
        for job in jobs:
            try:
                result = {"assembly": assembly(job["module"], job["target"], job["threads"])}
            # Whatever TVM raises is this job's result; the other jobs go on.
            except Exception as error:  # noqa: BLE001
                result = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(result), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
