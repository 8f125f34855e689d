"""The device that trains, and the number format it is good at: the only file that asks torch."""

from dataclasses import dataclass
from typing import Literal

import torch

# What the processor must have before bf16 is faster than fp32. torch's own switch
# (mkldnn._is_mkldnn_bf16_supported) also says yes where bf16 is only emulated with AVX-512.
CPU_BF16 = ("amx_bf16", "avx512_bf16", "sve_bf16", "bf16")


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where the model runs and in which precision the forward pass is done.

    Weights, gradients and the optimizer are float32 in either precision.
    """

    device: torch.device
    precision: Literal["bf16", "fp32"]
    reason: str

    def autocast(self) -> torch.autocast:
        """A context in which matrix products run in the chosen precision."""
        enabled = self.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)


def choose_backend(precision: Literal["auto", "bf16", "fp32"]) -> Backend:
    """Take the GPU where there is one, and bf16 where the hardware really has it."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    able, finding = _bf16(device)
    if precision == "fp32":
        return Backend(device=device, precision="fp32", reason="asked for")
    if precision == "bf16":
        reason = "asked for" if able else f"asked for, though {finding}: expect it to be slow"
        return Backend(device=device, precision="bf16", reason=reason)
    return Backend(device=device, precision="bf16" if able else "fp32", reason=finding)


def _bf16(device: torch.device) -> tuple[bool, str]:
    """Whether the device computes in bf16, and in words what says so."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        able = torch.cuda.is_bf16_supported(including_emulation=False)
        return able, f"{name} has {'' if able else 'no '}bf16 arithmetic"
    capabilities = torch.cpu.get_capabilities()
    found = [name for name in CPU_BF16 if capabilities.get(name)]
    if found:
        return True, f"this processor has {', '.join(found)}"
    return False, "this processor has no bf16 instructions"
