"""The one file that knows TVM generations: every TVM name that moved between them comes from here.

Two generations are supported.  Today's TVM (0.25 and later) speaks Relax, keeps MetaSchedule in
``tvm.s_tir`` and calls a schedulable unit an *sblock*.  Relay-era TVM (tried: 0.16) has Relay,
AutoTVM and ``tvm.meta_schedule``, and calls the same unit a *block*.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import platform
from collections.abc import Callable
from functools import partial
from typing import Any

import tvm

#: whether the TVM that is installed has Relay (and so AutoTVM, and no Relax worth compiling with)
RELAY: bool = importlib.util.find_spec("tvm.relay") is not None

if RELAY:
    from tvm import meta_schedule as ms
    from tvm import tir as tirx
    from tvm.arith import detect_linear_equation
    from tvm.meta_schedule.tune_context import _normalize_mod as normalize_mod
    from tvm.meta_schedule.utils import derived_object
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tir as _builder
    from tvm.tir import Block as SBlock
    from tvm.tir import BlockRealize as SBlockRealize
    from tvm.tir import transform as s_transform
    from tvm.tir.schedule import Schedule, ScheduleError, Trace
    from tvm.tir.transform import Simplify as StmtSimplify
else:
    import tvm_ffi
    from tvm import tirx
    from tvm.ir.utils import derived_object
    from tvm.s_tir import SBlock, SBlockRealize
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir import transform as s_transform
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod as normalize_mod
    from tvm.s_tir.schedule import Schedule, ScheduleError, Trace
    from tvm.script.ir_builder import IRBuilder
    from tvm.sym import detect_linear_equation
    from tvm.tirx.script.builder import ir as _builder
    from tvm.tirx.transform import StmtSimplify

__all__ = [
    "COMPILE_LINE",
    "IRBuilder",
    "NOALIAS",
    "RELAY",
    "SBlock",
    "SBlockRealize",
    "SCHEDULED",
    "Schedule",
    "ScheduleError",
    "StmtSimplify",
    "T",
    "Trace",
    "build_for_runner",
    "compile_module",
    "compiler_version",
    "derived_object",
    "detect_linear_equation",
    "device_type",
    "extract_tasks",
    "function_buffers",
    "gpu_default_schedule",
    "graph_function",
    "host_triple",
    "is_graph",
    "load_tensor_intrinsics",
    "ms",
    "new_schedule",
    "normalize_mod",
    "plain",
    "prefetch",
    "region_buffer",
    "space_generator",
    "s_transform",
    "structural_equal",
    "structural_hash",
    "target_config",
    "tensor",
    "tirx",
    "visit_blocks",
    "without_layout_rewrite",
]


class _RelayEraBuilder:
    """That generation's IR builder, with what templates write under today's names."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_builder, name)

    @staticmethod
    def prim_func(s_tir: bool) -> Any:
        """Every PrimFunc can be scheduled."""
        return _builder.prim_func()

    def alloc_buffer(self, shape: Any, dtype: str, scope: str) -> Any:
        """A buffer that lives until the enclosing frame ends."""
        data = self._rest_of_frame(_builder.allocate(shape, dtype, scope))
        return self._rest_of_frame(_builder.decl_buffer(shape, dtype, data, scope=scope))

    def decl_buffer(self, shape: Any, dtype: str, data: Any) -> Any:
        """Another view of memory, until the enclosing frame ends."""
        return self._rest_of_frame(_builder.decl_buffer(shape, dtype, data))

    def Bind(self, value: Any) -> Any:
        """A variable that holds ``value`` until the enclosing frame ends."""
        return self._rest_of_frame(_builder.LetStmt(value))

    @staticmethod
    def _rest_of_frame(frame: Any) -> Any:
        frame.add_callback(partial(frame.__exit__, None, None, None))
        return frame.__enter__()

    @staticmethod
    def call_llvm_intrin(dtype: str, name: Any, *arguments: Any) -> Any:
        """An LLVM intrinsic; here the number of arguments that choose its overload comes first."""
        count = tirx.const(len(arguments), "uint32")
        return tirx.call_llvm_intrin(dtype, name, count, *arguments)

    @staticmethod
    def call_llvm_pure_intrin(dtype: str, name: Any, *arguments: Any) -> Any:
        """As ``call_llvm_intrin``, without side effects."""
        count = tirx.const(len(arguments), "uint32")
        return tirx.call_llvm_pure_intrin(dtype, name, count, *arguments)


#: the IR builder, as today's TVM calls its parts
T: Any = _RelayEraBuilder() if RELAY else _builder

_DIALECT = "tir" if RELAY else "tirx"
#: attributes of a PrimFunc: its buffers do not overlap; default schedules leave it alone
NOALIAS, SCHEDULED = f"{_DIALECT}.noalias", f"{_DIALECT}.is_scheduled"


#: modules that define TVM's tensor intrinsics; the Relay-era build at hand leaves them to the user
_TENSOR_INTRINSICS: tuple[str, ...] = ("tvm.s_tir.tensor_intrin",)
if RELAY:
    _KINDS = ("x86", "arm_cpu", "cuda", "rocm", "hexagon")
    _TENSOR_INTRINSICS = tuple(f"tvm.tir.tensor_intrin.{kind}" for kind in _KINDS)

#: how a user compiles with a tuned database
COMPILE_LINE = (
    "library = tvm.meta_schedule.relay_integration.compile_relay(database, mod, target, params)"
    if RELAY
    else "executable = tvm.s_tir.meta_schedule.relax_integration."
    "compile_relax(database, mod, target, params)"
)


def compiler_version() -> str:
    """The compiler as it stands in record keys, e.g. ``tvm-0.27.0.post1``."""
    return f"tvm-{tvm.__version__}"


def new_schedule(mod: Any) -> Schedule:
    """A schedule without debug checks or rendered errors (both cost more than scheduling)."""
    return Schedule(mod, debug_mask="none", error_render_level="none")


def load_tensor_intrinsics() -> None:
    """Import what defines TVM's tensor intrinsics (slow where TVMScript reads source lines)."""
    for name in _TENSOR_INTRINSICS:
        importlib.import_module(name)


def structural_equal(left: Any, right: Any) -> bool:
    """Whether two modules or functions are the same program."""
    equal = tvm.ir.structural_equal if RELAY else tvm_ffi.structural_equal
    return bool(equal(left, right))


def structural_hash(mod: Any) -> int:
    """Equal programs hash equal, whatever their variables are called."""
    hash_of = tvm.ir.structural_hash if RELAY else tvm_ffi.structural_hash
    return int(hash_of(mod)) % 2**64


def plain(value: Any) -> Any:
    """A TVM immediate, string or array as a plain Python value."""
    if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        return value.value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "__iter__") or (RELAY and isinstance(value, tvm.ir.Array)):
        return tuple(plain(item) for item in value)
    return value


def prefetch(element: Any, write: bool) -> Any:
    """Fetch the cache line of a buffer's element into L1 (LLVM targets), to be written if so."""
    if RELAY and element.dtype == "bfloat16":
        # A hint only, and that generation's legalization of bfloat16 leaves nothing to address.
        return tirx.const(0, "int32")
    address = tirx.address_of(element)
    arguments = (tirx.const(int(write), "int32"), tirx.const(3, "int32"), tirx.const(1, "int32"))
    return T.call_llvm_intrin("void", "llvm.prefetch", address, *arguments)


def region_buffer(region: Any) -> Any:
    """The buffer that a block's read or write region lies in."""
    return region.source if hasattr(region, "source") else region.buffer


def visit_blocks(function: Any, visit: Callable[[Any], None]) -> None:
    """Call ``visit`` with every block of a PrimFunc."""
    if not RELAY:
        tvm_ffi.structural_walk(function.body, (SBlock, visit))
        return

    def visit_node(node: Any) -> None:
        if isinstance(node, SBlock):
            visit(node)

    tirx.stmt_functor.post_order_visit(function.body, visit_node)


def function_buffers(function: Any) -> list[Any]:
    """What a PrimFunc takes, in order: its buffers, and the variables of its scalars."""
    if not RELAY:
        return list(function.params)
    return [function.buffer_map.get(param, param) for param in function.params]


def without_layout_rewrite(mod: Any) -> Any:
    """The module without blocks that pack weights at run time: weights come packed."""
    # positional: its one argument is called skip_ndarray_rewrite or skip_tensor_rewrite
    return s_transform.RemoveWeightLayoutRewriteBlock(True)(mod)


def build_for_runner(mod: Any, target: Any, _params: Any) -> Any:
    """The build function of a MetaSchedule ``LocalBuilder``."""
    from tvm.driver import build

    return build(without_layout_rewrite(mod), target=target)


def compile_module(mod: Any, target: Any) -> Any:
    """A TIR module compiled in memory, as a ``tvm.runtime.Module``."""
    return tvm.build(mod, target=target) if RELAY else tvm.compile(mod, target=target).jit()


def tensor(array: Any, device: Any = None) -> Any:
    """A numpy array as a TVM tensor on a device (default: CPU)."""
    if RELAY:
        return tvm.nd.array(array) if device is None else tvm.nd.array(array, device)
    return tvm.runtime.tensor(array, device)


def device_type(device: Any) -> int:
    """The DLPack number of a device's kind."""
    return int(device.device_type if RELAY else device.dlpack_device_type())


def host_triple() -> str:
    """LLVM's name of the machine that this runs on.

    A vendor's Relay-era build may name the boards it is made for instead.
    """
    triple = str(tvm.target.codegen.llvm_get_system_triple())
    machine = platform.machine()
    return f"{machine}-unknown-linux-gnu" if RELAY and not triple.startswith(machine) else triple


def target_config(target: Any) -> dict[str, Any]:
    """The dictionary that ``tvm.target.Target`` makes an equal target of."""
    if not RELAY:
        config: dict[str, Any] = json.loads(str(target))
        return config
    return {str(key): _json_value(value) for key, value in target.export().items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, tvm.ir.Map):
        return {str(key): _json_value(item) for key, item in value.items()}
    value = plain(value)
    return list(value) if isinstance(value, tuple) else value


def space_generator(target: Any) -> Any:
    """MetaSchedule's space generator for a target, as ``TuneContext`` takes it."""
    if not RELAY or str(target.kind.name) != "opencl":
        return "post-order-apply"
    # that generation has no rules for OpenCL, and CUDA's for its other GPUs
    rules = {"sch_rules": "cuda", "postprocs": "cuda", "mutator_probs": "cuda"}
    return ms.space_generator.PostOrderApply(**rules)


def gpu_default_schedule(mod: Any, target: Any) -> Any:
    """The module as TVM schedules it for a GPU without tuning."""
    rules = importlib.import_module("tvm.dlight" if RELAY else "tvm.s_tir.dlight")
    gpu = rules.gpu
    defaults = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    with target:
        return rules.ApplyDefaultSchedule(*defaults)(mod)


def graph_function() -> Any:
    """The class of functions of the graph language: Relay's or Relax's."""
    return importlib.import_module("tvm.relay" if RELAY else "tvm.relax").Function


def is_graph(mod: Any) -> bool:
    """Whether a module has functions of the graph language."""
    kind = graph_function()  # before its objects are looked at: they take their class from it
    return any(isinstance(function, kind) for function in mod.functions.values())


def extract_tasks(mod: Any, target: Any, params: dict[str, Any]) -> list[Any]:
    """MetaSchedule's tasks of a Relay module, or of a Relax module with parameters bound."""
    if RELAY:
        return list(ms.relay_integration.extract_tasks(mod, target, params))
    return list(ms.relax_integration.extract_tasks(mod, target))


if RELAY:
    from .alias_tags import repair

    repair(tvm.target.Target({"kind": "llvm", "mtriple": host_triple()}))
