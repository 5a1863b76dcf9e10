"""How exactly the matrix and vector units compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

from softmesh.hardware.config import HardwareConfig
from softmesh.hardware.data_movement import Arch
from softmesh.native_enum import NativeEnum


class MathFidelity(NativeEnum):
    """How many passes a multiplication makes over the mantissas: more passes, more bits."""

    LoFi = 0
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4
    Invalid = 255


class ThrottleLevel(NativeEnum):
    """How much a matmul slows itself down to stay within the power budget."""

    NO_THROTTLE = 0
    LEVEL_1 = 1
    LEVEL_2 = 2
    LEVEL_3 = 3
    LEVEL_4 = 4
    LEVEL_5 = 5


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class WormholeComputeKernelConfig(HardwareConfig):
    """Precision of a compute kernel; for Blackhole as well, in spite of its name."""

    math_fidelity: MathFidelity = MathFidelity.Invalid
    math_approx_mode: bool = True
    fp32_dest_acc_en: bool = False
    packer_l1_acc: bool = False
    dst_full_sync_en: bool = False
    throttle_level: ThrottleLevel = ThrottleLevel.NO_THROTTLE


BlackholeComputeKernelConfig = WormholeComputeKernelConfig
DeviceComputeKernelConfig = WormholeComputeKernelConfig


def init_device_compute_kernel_config(
    arch: Arch,
    device_kernel_config: WormholeComputeKernelConfig | None = None,
    *,
    math_fidelity: MathFidelity = MathFidelity.LoFi,
    math_approx_mode: bool = True,
    fp32_dest_acc_en: bool = False,
    packer_l1_acc: bool = False,
    dst_full_sync_en: bool = False,
    throttle_level: ThrottleLevel = ThrottleLevel.NO_THROTTLE,
) -> WormholeComputeKernelConfig:
    """A copy of the config given, or one of the other arguments; every `arch` has the same class."""
    if device_kernel_config is not None:
        return replace(device_kernel_config)
    return WormholeComputeKernelConfig(
        math_fidelity=math_fidelity,
        math_approx_mode=math_approx_mode,
        fp32_dest_acc_en=fp32_dest_acc_en,
        packer_l1_acc=packer_l1_acc,
        dst_full_sync_en=dst_full_sync_en,
        throttle_level=throttle_level,
    )
