"""The child process that builds and times AutoTVM's schedules.

``python -m tunerplugin.integrations.autotvm.worker``; a worker of ``tunerplugin.measure`` but for
the form of a candidate: a TE schedule with its arguments, whose shapes may differ between
candidates, as templates choose layouts of their own.
"""

from __future__ import annotations

import json
import time
from typing import Any

from ...measure.protocol import Message
from ...measure.values import Param, make_inputs
from ...measure.worker import Server, main
from ...outcome import Status

#: in a request: the ``save_json`` text of [schedule, arguments]; whether to check the outputs
SCHEDULE, VERIFY = "schedule", "verify"


class ScheduleServer(Server):
    """Builds TE schedules; the reference of a candidate, if asked for, is its own unscheduled
    computation."""

    def _compute_reference(self, message: Message, _: bytes) -> tuple[Message, bytes]:
        """Candidates have no reference in common."""
        return {"status": Status.OK.value}, b""

    def _take_task(self, message: Message, _: bytes) -> tuple[Message, bytes]:
        self._built.clear()
        self._references: dict[int, Any] = {}
        self._seed = int(message["seed"])
        self._target = self._program.load_target(message["target"])
        self._program.require_fit(self._target, self._device)
        return {"status": Status.OK.value}, b""

    def _build(self, message: Message, _: bytes) -> tuple[Message, bytes]:
        """Lower and compile a schedule into a slot."""
        import tvm

        for slot in [s for s in self._built if s < message["oldest_slot"]]:
            del self._built[slot]
            self._references.pop(slot, None)
        request = json.loads(message["module"])
        schedule, arguments = tvm.ir.load_json(request[SCHEDULE])
        module = tvm.build(schedule, list(arguments), target=self._target)
        module.get_function(module.entry_name)  # LLVM makes machine code only then
        params = tuple(
            Param(str(a.op.name), tuple(int(d) for d in a.shape), str(a.dtype), False, True)
            for a in arguments
        )
        signature = self._program.Signature(module.entry_name, params, 0.0)
        slot = message["slot"]
        if request[VERIFY]:
            reference = self._reference_of(arguments)
            signature = self._program.Signature(
                module.entry_name, reference.signature.params, reference.signature.relative
            )
            self._references[slot] = reference
        self._built[slot] = self._program.Program(signature, module, module, None)
        return {"status": Status.OK.value}, b""

    def _reference_of(self, arguments: Any) -> Any:
        """What the outputs must be: the computation as it stands, one loop nest per stage."""
        import tvm

        mod = tvm.IRModule({"main": tvm.te.create_prim_func(list(arguments))})
        reference = self._program.Reference(tvm.ir.save_json(mod), self._seed)
        reference.accept(reference.compute(self._target))
        return reference

    def _run(self, message: Message, _: bytes) -> tuple[Message, bytes]:
        """Check if asked to, then time."""
        slot = message["slot"]
        built = self._built[slot] if message["keep"] else self._built.pop(slot)
        reference = self._references.pop(slot, None)
        if reference is not None:
            first_s, fault = self._program.check(built, reference, self._device)
            if fault is not None:
                return {"status": fault[0].value, "reason": fault[1]}, b""
        else:
            first_s = self._first_run(built)
        samples = self._program.time_samples(
            built, self._device, message["repeats"], message["min_repeat_s"], first_s
        )
        return {"status": Status.OK.value, "samples_s": samples}, b""

    def _first_run(self, built: Any) -> float:
        """Seconds of the first run, on random values."""
        inputs = make_inputs(built.signature.params, self._seed)
        built.arguments = [self._program.compat.tensor(a, self._device) for a in inputs]
        function = built.checked[built.signature.name]
        self._device.sync()
        start = time.perf_counter()
        function(*built.arguments)
        self._device.sync()
        return time.perf_counter() - start


if __name__ == "__main__":
    main(ScheduleServer)
