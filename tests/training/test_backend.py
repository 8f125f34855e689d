"""Which precision is taken, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from training.backend import choose_backend

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("asked", "capabilities", "precision", "reason"),
    [
        ("auto", {"avx512_bf16": True}, "bf16", "this processor has avx512_bf16"),
        ("auto", {"amx_bf16": True, "avx512_bf16": True}, "bf16", "amx_bf16, avx512_bf16"),
        ("auto", {"architecture": "aarch64", "bf16": True}, "bf16", "this processor has bf16"),
        ("auto", {"avx512_f": True, "avx512_bf16": False}, "fp32", "no bf16 instructions"),
        ("fp32", {"avx512_bf16": True}, "fp32", "asked for"),
        ("bf16", {"avx512_bf16": True}, "bf16", "asked for"),
        ("bf16", {}, "bf16", "expect it to be slow"),
    ],
)
def test_precision(
    monkeypatch: pytest.MonkeyPatch,
    asked: Any,
    capabilities: dict[str, Any],
    precision: str,
    reason: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    backend = choose_backend(asked)
    assert (backend.device.type, backend.precision) == ("cpu", precision)
    assert reason in backend.reason
    with backend.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
