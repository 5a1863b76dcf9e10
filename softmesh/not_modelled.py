"""Names of TT-NN that softmesh leaves out on purpose, and why. `softmesh coverage` shows them apart."""

from __future__ import annotations

from collections.abc import Iterable

from softmesh.errors import NotModelled, did_you_mean

_PREFIX = "ttnn."

_OTHER_RELEASE = "it is a name of another release than TT-NN 0.81"
_PARAMETERS = f"{_OTHER_RELEASE}; write tensors with ttnn.dump_tensor and read them with ttnn.load_tensor"
_ALLOCATIONS = (
    f"{_OTHER_RELEASE}; set TT_METAL_TRACE_ALLOC_TRACKING=1 to have allocations watched that "
    "a trace may overwrite"
)
_FORMS = "the forms of its tensors are not documented"
_COMPLEX = "tensors of complex numbers are not modelled; keep real and imaginary parts as two tensors"
_LEVELS = "its rounding is not documented; use ttnn.multiply, ttnn.round and ttnn.typecast"

# dotted name below ttnn -> the reason, and what to use instead
REASONS: dict[str, str] = {
    "D2DStreamService": (
        "its two ends are kernels that stay on worker cores, and those are not modelled; join the meshes by "
        "ttnn.create_socket_pair and use ttnn.experimental.send_async and recv_async"
    ),
    "LayerAckService": (
        "it answers kernels that stay on worker cores, and those are not modelled; ttnn.D2HStreamService brings "
        "tensors to the host"
    ),
    **dict.fromkeys(
        ("angle", "complex_tensor", "conj", "imag", "is_imag", "is_real", "polar", "real"), _COMPLEX
    ),
    **dict.fromkeys(("angle_bw", "conj_bw", "imag_bw", "polar_bw", "real_bw"), _COMPLEX),
    **dict.fromkeys(("dequantize", "quantize", "requantize"), _LEVELS),
    "assign_bw": "a copy hands its gradient on as it is; use that",
    "bmm": f"{_OTHER_RELEASE}; use ttnn.matmul",
    "concat_bw": "the gradient of each part is its part of the gradient; use ttnn.slice",
    "copy_host_to_device_tensor_partial": (
        "what lies on single cores is not kept apart; use ttnn.copy_host_to_device_tensor"
    ),
    "create_group_norm_reciprocals": f"{_OTHER_RELEASE}; use ttnn.create_layer_norm_reciprocals",
    "deallocate_buffers": f"{_OTHER_RELEASE}; use ttnn.device.DeallocateBuffers",
    "dtype": f"{_OTHER_RELEASE}; use ttnn.DataType",
    "experimental.device": f"{_OTHER_RELEASE}; use ttnn.device",
    "experimental.deepseek_prefill.combine": f"{_FORMS}; use ttnn.all_to_all_combine",
    "experimental.deepseek_prefill.dispatch": f"{_FORMS}; use ttnn.all_to_all_dispatch",
    "experimental.deepseek_prefill.moe_padding_config": f"{_FORMS}; leave padding_config out",
    "experimental.deepseek_prefill.offset_cumsum": (
        f"{_FORMS}; count with ttnn.experimental.deepseek_prefill.masked_bincount and use ttnn.cumsum"
    ),
    "experimental.deepseek_prefill.inbound_socket_service_sync": (
        "it waits on worker cores for a stream service, and those are not modelled; use the service's barrier() and "
        "get_backing_tensor()"
    ),
    "experimental.deepseek_prefill.outbound_socket_service_sync": (
        "it tells worker cores of a stream service, which are not modelled; use the service's notify_backing_ready()"
    ),
    **{
        f"experimental.disaggregation{name}": (
            "it reads a cache by its addresses on chips that another process holds; read it with ttnn.from_device"
        )
        for name in (
            "",
            ".DeviceGroupIndex",
            ".KvCacheLocation",
            ".KvChunkAddressTable",
            ".KvChunkAddressTableConfig",
            ".export_to_protobuf_file",
            ".import_from_protobuf_file",
            ".read_dram_umd",
            ".tensor_from_bf16_bytes",
            ".tensor_from_bfp8_bytes",
        )
    },
    "experimental.indexer_score_msa": (
        "how it pools the scores of a block is not documented; use ttnn.experimental.indexer_score_dsa, or ttnn.matmul "
        "and ttnn.max"
    ),
    "experimental.llama_rs_matmul": (
        "the order of its results is not documented; use ttnn.matmul and ttnn.experimental.llama_reduce_scatter"
    ),
    "experimental.moe_gpt": f"{_FORMS}; use ttnn.experimental.moe_compute with MoEActivationFunction.SWIGLU",
    "experimental.rgb_to_yuv": f"{_FORMS}; use ttnn.matmul with the coefficients",
    "experimental.tensor_prefetcher_matmul.prefetch_and_linear": (
        "its arguments are not documented; use ttnn.linear with global_cb"
    ),
    "experimental.topk_router_gpt": (
        "the order of its results is not documented; use ttnn.linear, ttnn.topk and ttnn.softmax"
    ),
    "experimental.yuv_bt601_coefficients": f"{_FORMS}; use ttnn.matmul with the coefficients",
    "load_parameters": _PARAMETERS,
    "prod_bw": "it is gradient * product / input; use ttnn.multiply and ttnn.divide",
    "randn": "the chip's generator is not documented; use ttnn.from_torch(torch.randn(...), device=mesh_device)",
    "read_device_profiler": f"{_OTHER_RELEASE}; use ttnn.ReadDeviceProfiler",
    "repeat_bw": "the gradient of what was repeated is the sum over its copies; use ttnn.reshape and ttnn.sum",
    "save_parameters": _PARAMETERS,
    "situ_glu": "its formula is not documented; compose it of ttnn.sigmoid, ttnn.tanh and ttnn.multiply",
    "std_hw": "use ttnn.std with dim=[-2, -1]",
    "to": f"{_OTHER_RELEASE}; use ttnn.to_device, ttnn.to_layout or ttnn.to_dtype",
    "trace_allocation_config": _ALLOCATIONS,
    "transformer.gated_delta_attn_seq": f"{_FORMS}; use ttnn.transformer.chunk_gated_delta_rule",
    "ttnn": f"{_OTHER_RELEASE}; leave the second ttnn out",
    "uniform": "the chip's generator is not documented; use ttnn.rand",
    "unsafe_allocation_tracker": _ALLOCATIONS,
    "var_hw": "use ttnn.var with dim=[-2, -1]",
}
_MOREH = (
    "of this family only what programs were seen to use is modelled; use the op without moreh_ in its name, and "
    "softmesh.train for gradients and optimizers"
)


def reason_for(name: str) -> str | None:
    """Why there is no `ttnn.x.y`; None where nobody said."""
    short = name.removeprefix(_PREFIX)
    return _MOREH if short.startswith("moreh_") else REASONS.get(short)


def not_modelled(name: str, known: Iterable[str]) -> NotModelled:
    """The error for `ttnn.x.y`: with the reason, or with the name among the `known` that is near."""
    reason = reason_for(name)
    if reason is not None:
        return NotModelled(f"softmesh has no {name!r}: {reason}.")
    hint = did_you_mean(name.rpartition(".")[2], known, cutoff=0.8)
    return NotModelled(f"softmesh has no {name!r}: it is not modelled, or not a name of TT-NN.{hint}")
