"""The xla device: what torch_xla does without a word, and what the backend makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from training.core.backend import XlaBackend, open_backend

ROOT = Path(__file__).parents[2]
OPEN = """
import sys
from training.command import run
from training.core.backend import open_backend
sys.exit(run(lambda: print("opened", open_backend("xla", "fp32").name())))
"""


@pytest.fixture(scope="module")
def backend() -> XlaBackend:
    opened = open_backend("xla", "fp32")
    assert isinstance(opened, XlaBackend)
    return opened


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment with changes; None takes a variable away."""
    merged: dict[str, str | None] = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    return {name: value for name, value in merged.items() if value is not None}


def start(**changes: str | None) -> subprocess.CompletedProcess[str]:
    """Open the xla device in a new process."""
    return subprocess.run(
        [sys.executable, "-c", OPEN],
        capture_output=True,
        text=True,
        env=environment(**changes),
        cwd=ROOT,
        timeout=300,
        check=False,
    )


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refused start ends with."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return next(line for line in done.stderr.splitlines() if line.startswith("error: "))


def installed(folder: Path, version: str) -> str:
    """A path on which a package torch-neuronx of some version is found, which raises."""
    about = folder / f"torch_neuronx-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch-neuronx\nVersion: {version}\n", encoding="utf-8"
    )
    module = folder / "torch_neuronx"
    module.mkdir()
    (module / "__init__.py").write_text("raise ImportError('WRONG PACKAGE')\n", encoding="utf-8")
    return f"{folder}{os.pathsep}{ROOT}"


def small_bert() -> Any:
    """A masked language model, whose decoder shares the weights of its embedding."""
    torch.manual_seed(0)
    return BertForMaskedLM(
        BertConfig(
            vocab_size=97,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
    )


def test_the_device_is_that_of_torch_xla(backend: XlaBackend) -> None:
    assert backend.device.type == "xla"
    assert backend.fixed_shapes
    assert backend.versions()["torch-xla"] == "2.9.0"
    assert backend.sum([1.0, 2.5]) == [1.0, 2.5]


def test_a_move_to_the_device_keeps_weights_tied(backend: XlaBackend) -> None:
    parameters = len(list(small_bert().parameters()))
    untied = small_bert().to(backend.device)
    assert len(list(untied.parameters())) > parameters  # what torch_xla does by itself
    placed = backend.place(small_bert())
    assert len(list(placed.parameters())) == parameters
    assert placed.cls.predictions.decoder.weight is placed.bert.embeddings.word_embeddings.weight


def test_tied_weights_are_trained_as_one(backend: XlaBackend) -> None:
    ids = torch.arange(16).reshape(2, 8)
    losses = []
    for device in ("cpu", "xla"):
        model = small_bert().eval()
        model = backend.place(model) if device == "xla" else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            loss = model(input_ids=ids.to(model.device), labels=ids.to(model.device)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            backend.sync()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_the_fused_optimizer_is_not_offered_where_its_step_raises(backend: XlaBackend) -> None:
    weight = torch.ones(2, device=backend.device, requires_grad=True)
    weight.sum().backward()
    with pytest.raises(RuntimeError):
        torch.optim.AdamW([weight], fused=True).step()
    assert not backend.fused_optimizer


def test_bf16_is_close_to_fp32(backend: XlaBackend) -> None:
    model = backend.place(small_bert().eval())
    ids = torch.arange(16).reshape(2, 8).to(backend.device)
    exact = model(input_ids=ids, labels=ids).loss.item()
    with torch.autocast("xla", dtype=torch.bfloat16):
        rounded = model(input_ids=ids, labels=ids).loss
    assert rounded.item() == pytest.approx(exact, rel=1e-2)
    assert rounded.item() != exact


def test_values_are_read_back_and_batches_moved(backend: XlaBackend) -> None:
    moved = backend.move({"ids": torch.arange(3)})
    assert moved["ids"].device.type == "xla"
    later = backend.read_later(moved["ids"].float() * 2)
    backend.sync()
    assert later() == [0.0, 2.0, 4.0]


def test_the_same_seed_gives_the_same_dropout(backend: XlaBackend) -> None:
    drawn = []
    for seed in (7, 7, 8):
        backend.seed(seed)
        ones = torch.ones(64, device=backend.device)
        drawn.append(torch.nn.functional.dropout(ones, 0.5).cpu())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_device_that_does_not_exist_is_named() -> None:
    assert "PJRT_DEVICE=MOONSTONE" in refusal(start(PJRT_DEVICE="MOONSTONE"))


def test_without_neuron_nothing_falls_back_to_the_processor() -> None:
    assert "torch-neuronx is not installed" in refusal(start(PJRT_DEVICE=None))


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("1.0", "torch-neuronx 1.0 is PyPI's placeholder"),
        ("2.8.0.2.10.1", "needs torch 2.8, this is 2.9"),
        ("2.13.0.1", "is TorchNeuron, which has no Trn1"),
        # The right line, but not a device in sight: torch_xla would take the processor.
        ("2.9.0.2.15.32035", "PJRT runs on CPU, expected NEURON"),
    ],
)
def test_another_torch_neuronx_is_refused(tmp_path: Path, version: str, reason: str) -> None:
    done = start(PJRT_DEVICE=None, PYTHONPATH=installed(tmp_path, version))
    assert reason in refusal(done)


def test_workers_that_do_not_see_each_other_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "open.py"
    script.write_text(OPEN, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc_per_node", "2", str(script)),
        ],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert "opened" not in done.stdout
    assert "the runtime has 1 workers and torchrun started 2" in done.stderr
