"""Isolated build and run of TVM modules, with deadlines and output verification.

Importing this package loads neither tvm nor numpy; the worker processes do.
"""

from .bench import MeasureTask
from .host import available_cores, device_name, host_target
from .measurer import Measurer, Request
from .script_speed import fast_script_parsing, preload_tensor_intrinsics

__all__ = [
    "MeasureTask",
    "Measurer",
    "Request",
    "available_cores",
    "device_name",
    "fast_script_parsing",
    "host_target",
    "preload_tensor_intrinsics",
]
