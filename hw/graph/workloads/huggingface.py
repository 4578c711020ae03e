"""Models of the ``transformers`` library from their configurations: no weights, no download.

Needs the extra ``tunerplugin[workloads]``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ....errors import GraphError

if TYPE_CHECKING:
    from torch import nn

# Name -> model class, configuration class, and what differs from the configuration's defaults
# (GPT2Config is GPT-2 small, OPTConfig OPT-125M, LlamaConfig Llama-2-7B).
_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2-xl": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "gpt3": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048},
    ),
    "opt-1.3b": (
        "OPTForCausalLM",
        "OPTConfig",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "ffn_dim": 8192,
            "num_attention_heads": 32,
            "word_embed_proj_dim": 2048,
        },
    ),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "d_model": 768,
            "num_layers": 12,
            "num_heads": 12,
            "d_ff": 3072,
            "decoder_start_token_id": 0,
        },
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
}


def build_model(name: str) -> nn.Module:
    """The model of that name, on the default device of torch.

    Raises ``GraphError`` when transformers is not installed.
    """
    try:
        transformers = import_module("transformers")
    except ImportError as error:
        raise GraphError(
            f"the workload {name!r} needs transformers, which is not installed; "
            "install tunerplugin[workloads]"
        ) from error
    model, config, changes = _MODELS[name]
    configuration = getattr(transformers, config)(
        **changes, use_cache=False, attn_implementation="eager"
    )
    return cast("nn.Module", getattr(transformers, model)(configuration))
