"""AutoTVM's local runner, repaired for the one build with Relay that can be installed.

Its RPC client sends (path, options, compiler) to ``tvm.rpc.server.load_module``, its server takes
the path alone.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm.rpc.server as rpc_server
from tvm import autotvm
from tvm.autotvm.measure.measure_methods import RPCRunner
from tvm.rpc.server import Server
from tvm.rpc.tracker import Tracker


def tolerate_arguments() -> None:
    """Runs in the server's process: load a module whatever comes with its path."""
    original = rpc_server._server_env

    def environment(load_library: Any, work_path: Any = None) -> Any:
        folder = original(load_library, work_path)

        @tvm.register_func("tvm.rpc.server.load_module", override=True)
        def load_module(file_name: str, *_: Any) -> Any:
            return rpc_server._load_module(folder.relpath(file_name))

        return folder

    rpc_server._server_env = environment


class _RepairedLocalRunner(autotvm.LocalRunner):
    def set_task(self, task: Any) -> Any:
        tracker = Tracker(port=9000, port_end=10000, silent=True)
        key = f"$local$device${tracker.port}"
        address = ("127.0.0.1", tracker.port)
        server = Server(
            port=9000,
            port_end=10000,
            key=key,
            silent=True,
            tracker_addr=address,
            server_init_callback=tolerate_arguments,
        )
        self.key, (self.host, self.port) = key, address
        RPCRunner.set_task(self, task)
        return server, tracker


def repaired_local_runner(**options: Any) -> Any:
    """``autotvm.LocalRunner`` with these options."""
    return _RepairedLocalRunner(**options)
