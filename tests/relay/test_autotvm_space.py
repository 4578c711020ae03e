"""Configuration spaces of AutoTVM as ours: the same configurations, each once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.autotvm.task.space import ConfigEntity, ConfigSpace

from tests.relay import templates
from tunerplugin.errors import SpaceError
from tunerplugin.integrations.autotvm.space import TemplateSpace
from tunerplugin.integrations.autotvm.task import TemplateTask, instantiate
from tunerplugin.integrations.autotvm.threads import kernel_threads
from tunerplugin.space import Prefix, Space
from tunerplugin.testing import SpaceConformance

REAL = {
    "dense_nopack": lambda: templates.dense(),
    "dense_pack": lambda: templates.dense(4, 6, 2, "pack"),
    "conv2d_NCHWc": lambda: templates.convolution("conv2d_NCHWc.x86"),
    "depthwise": lambda: templates.convolution("depthwise_conv2d_NCHWc.x86"),
    "every_knob": lambda: templates.every_knob_task(),
    "conv2d_cuda": lambda: templates.convolution("conv2d_nchw.cuda", 2, 2, templates.CUDA),
}


def valid_indices(config_space: Any) -> list[int]:
    return [i for i in range(config_space.range_length) if config_space.is_index_valid(i)]


@pytest.mark.parametrize("name", REAL)
def test_the_space_is_the_config_space(name: str) -> None:
    """Every valid index is reached once, by an assignment that leads back to it."""
    config_space = REAL[name]().config_space
    space = TemplateSpace(config_space)
    every = list(space.enumerate())
    assert sorted(space.index_of(values) for values in every) == valid_indices(config_space)
    for values in every[:: max(1, len(every) // 50)]:
        mine, theirs = space.config(values), config_space.get(space.index_of(values))
        assert mine.to_json_dict() == theirs.to_json_dict()
        assert space.values_of(theirs) == values
        from_log = ConfigEntity.from_json_dict(json.loads(json.dumps(theirs.to_json_dict())))
        assert space.values_of(from_log) == values


class TestEveryKnob(SpaceConformance):
    """A split of three, a verbose one, an order, annotations and options under a filter."""

    exact_on_prefixes = True

    def make_space(self) -> Space:
        return TemplateSpace(templates.every_knob_task(4, 3).config_space)

    def make_others(self) -> list[Space]:
        return [TemplateSpace(templates.every_knob_task(4, 5).config_space)]

    def is_legal(self, values: Prefix) -> bool:
        assert isinstance(values[0], int) and isinstance(values[2], int)
        return values[0] <= values[2]


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_definition_is_told_exactly(data: st.DataObject) -> None:
    """Knobs of all policies, candidates by hand and repeated ones among them, and a filter."""
    config_space = ConfigSpace()
    for number in range(data.draw(st.integers(1, 3))):
        extent = data.draw(st.integers(1, 12))
        policy = data.draw(st.sampled_from(["factors", "power2", "verbose"]))
        outputs = data.draw(st.integers(2, 3))
        axis = config_space.axis(extent)
        config_space.define_split(f"s{number}", axis, policy=policy, num_outputs=outputs)
    sizes = st.lists(st.integers(1, 3), min_size=2, max_size=2)
    candidate = data.draw(st.lists(sizes, min_size=1, max_size=4))
    config_space.define_split("hand", config_space.axis(9), "candidate", num_outputs=2,
                              candidate=candidate)  # fmt: skip
    option = st.one_of(st.booleans(), st.integers(-1, 2), st.floats(), st.none(), st.text())
    config_space.define_knob("option", data.draw(st.lists(option, min_size=1, max_size=4)))
    largest = data.draw(st.integers(1, 4))
    config_space.multi_filter(lambda entity: entity["s0"].size[-1] <= largest)
    space = TemplateSpace(config_space)
    distinct: dict[str, int] = {}
    for index in valid_indices(config_space):
        distinct.setdefault(str(config_space.get(index).to_json_dict()["entity"]), index)
    found = [space.index_of(values) for values in space.enumerate()]
    assert sorted(found) == sorted(distinct.values())


def test_a_log_of_another_version_of_the_template() -> None:
    """Entities count, not the index; what the space no longer has is no candidate."""
    space = TemplateSpace(templates.dense().config_space)
    entity = space.config(next(space.enumerate())).to_json_dict()
    moved = ConfigEntity.from_json_dict({**entity, "index": 5})
    assert space.values_of(moved) == next(space.enumerate())
    for wrong in (["tile_y", "sp", [-1, 7]], ["tile_y", "ot", 1], ["tile_z", "sp", [-1, 1]]):
        changed = {**entity, "entity": [wrong, *entity["entity"][1:]]}
        assert space.values_of(ConfigEntity.from_json_dict(changed)) is None
    shorter = {**entity, "entity": entity["entity"][1:]}
    assert space.values_of(ConfigEntity.from_json_dict(shorter)) is None


def test_an_index_outside() -> None:
    space = TemplateSpace(templates.dense().config_space)
    with pytest.raises(SpaceError, match="expected a configuration"):
        space.index_of((7, 1, 1))


def test_the_default_is_what_tvm_compiles_with() -> None:
    """The values that topi's fallback functions choose, worked out by hand."""
    # _default_dense_nopack_config: tile_y [1, M], tile_x [N, 1], tile_k the K of 16 that divides
    assert TemplateTask(templates.dense(16, 24, 12)).default() == (16, 1, 12)
    # conv2d_avx_common._fallback_schedule: simd width 8 divides both; largest ow factor below 32
    assert TemplateTask(templates.convolution("conv2d_NCHWc.x86")).default() == (8, 8, 6, 0)


@pytest.mark.parametrize("template", ["conv2d_nchw.cuda", "conv2d_nchw_winograd.cuda"])
def test_gpu_threads_are_told_from_the_knobs(template: str) -> None:
    """The limit refuses exactly the configurations whose schedules bind too many threads."""
    target = templates.CUDA.replace("=1024", "=8")
    task = templates.convolution(template, 2 if "wino" not in template else 4, 4, target)
    template_task = TemplateTask(task)
    (limit,) = template_task.space.constraints
    free = TemplateSpace(task.config_space)
    main = "bgemm" if "wino" in template else "conv2d_nchw"
    answers = set()
    for index in range(0, task.config_space.range_length, 1 + task.config_space.range_length // 60):
        values = free.values_of(task.config_space.get(index))
        assert values is not None
        schedule, _ = instantiate(task, free.config(values))
        fits = kernel_threads(schedule)[main] <= 8
        assert limit.allows(values) == fits, values
        answers.add(fits)
    assert answers == {True, False}
