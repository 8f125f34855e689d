"""Which device and precision are taken, and what is refused before a run starts."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest
import torch

from tests.training import ranks
from training.command import InputError
from training.core import backend as module
from training.core.backend import Workers, open_backend

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
    backend = open_backend("auto", asked)
    assert (backend.device.type, backend.precision) == ("cpu", precision)
    assert reason in backend.reason
    with backend.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        (None, "torch-neuronx is not installed"),
        ("1.0.0.0.0", "torch-neuronx 1.0.0.0.0 is PyPI's placeholder"),
        ("2.13.0.1.0", "is TorchNeuron, which has no Trn1"),
        ("2.9.0.2.15.32035", "needs torch 2.9, this is"),
    ],
)
def test_xla_needs_the_torch_neuronx_that_trn1_has(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, message: str
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(module, "version", version)
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    with pytest.raises(InputError, match=message) as caught:
        open_backend("xla", "auto")
    assert "training/requirements-neuron-*.txt" in str(caught.value)


def test_a_worker_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InputError, match="worker 0 of this node has no GPU, torch sees 0"):
        open_backend("cuda", "fp32")


def test_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with pytest.raises(InputError, match=r"torch is 2\.5\.1, and 2\.6 or newer is needed"):
        open_backend("cpu", "fp32")


def test_workers_that_do_not_reach_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # As torch-xla on a processor behaves: world size 2, and every sum is one's own value.
    monkeypatch.setattr(module.Backend, "connect", lambda _: None)
    monkeypatch.setattr(module.Backend, "reduce", lambda *_: None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="a sum of ones over 2 workers gave 1: they do not reach"):
        open_backend("cpu", "fp32")


def open_with_own_version() -> str:
    """Open a backend in which every worker has another torch."""
    rank = Workers.from_environment().rank
    torch.__version__ = f"2.13.{rank}"
    try:
        open_backend("cpu", "fp32")
    except InputError as error:
        return str(error)
    return "opened"


def test_workers_with_different_versions_are_found() -> None:
    told = ranks.run(2, open_with_own_version)
    for rank, message in enumerate(told):
        assert f"the workers have different versions; rank {rank}: " in message
        assert f"torch 2.13.{rank}" in message


def sums() -> list[float]:
    """One collective over tensors of several shapes."""
    backend = open_backend("cpu", "fp32")
    mine = float(backend.workers.rank + 1)
    tensors = [torch.full((2, 3), mine), torch.tensor(10 * mine)]
    backend.reduce(tensors)
    return [*tensors[0].flatten().tolist(), tensors[1].item()]


def test_tensors_become_their_sums_in_place() -> None:
    assert ranks.run(3, sums) == [[6.0] * 6 + [60.0]] * 3


def test_a_garbled_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(InputError, match="RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE must be"):
        Workers.from_environment()
