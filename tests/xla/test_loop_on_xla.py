"""The loop on the xla device: the numbers of the processor, and few compilations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_xla.debug.metrics as xla_metrics
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import RobertaConfig, RobertaForSequenceClassification

from training.core.backend import Backend, open_backend
from training.core.checkpoint import Checkpoints
from training.core.data import EMPTY, Order, cut_batch
from training.core.loop import Position, Run, make_optimizer, run
from training.core.metrics import Metrics, Record
from training.core.settings import Speed, Train
from training.core.stop import Stop
from training.core.store import FolderStore

EXAMPLES = 21  # no multiple of the batch
WIDTH = 16
STEPS = 8


class Texts:
    """Rows of token ids of several lengths, with a label each."""

    def __init__(self, *, dropout: float) -> None:
        torch.manual_seed(0)
        config = RobertaConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=WIDTH + 2,
            type_vocab_size=1,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            num_labels=3,
        )
        self.model: Any = RobertaForSequenceClassification(config)
        generator = torch.Generator().manual_seed(1)
        self.lengths = torch.randint(3, WIDTH + 1, (EXAMPLES,), generator=generator).tolist()
        self.rows = [torch.randint(3, 50, (n,), generator=generator) for n in self.lengths]

    def collate(self, rows: Sequence[int], width: int) -> dict[str, torch.Tensor]:
        ids = torch.ones(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        weights = torch.zeros(len(rows))
        labels = torch.zeros(len(rows), dtype=torch.long)
        mask[:, 0] = 1
        for place, row in enumerate(rows):
            if row != EMPTY:
                ids[place, : self.lengths[row]] = self.rows[row]
                mask[place, : self.lengths[row]] = 1
                weights[place] = 1.0
                labels[place] = row % 3
        return {"ids": ids, "mask": mask, "weights": weights, "labels": labels}

    def loss(
        self, forward: Callable[..., Any], batch: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = forward(input_ids=batch["ids"], attention_mask=batch["mask"]).logits.float()
        losses = cross_entropy(logits, batch["labels"], reduction="none")
        return (losses * batch["weights"]).sum(), batch["weights"].sum()

    def flops(self, width: int) -> float:
        return float(width)


def train(
    backend: Backend,
    folder: Path,
    *,
    micro: int | None = None,
    dropout: float = 0.0,
    stop_after: int | None = None,
    optimizer: str = "fused-adamw",
    compilations: list[int] | None = None,
    width: int | None = WIDTH,
) -> tuple[Texts, list[Record]]:
    """Train from the newest checkpoint in a folder, if there is one."""
    texts = Texts(dropout=dropout)
    backend.place(texts.model)
    settings = Train(batch_size=4, micro_batch_size=micro, learning_rate=1e-2)
    batch = cut_batch(settings, workers=1)
    speed = Speed(optimizer=optimizer)  # type: ignore[arg-type]
    adam = make_optimizer(texts.model, train=settings, speed=speed, backend=backend)
    checkpoints = Checkpoints(FolderStore(folder), keep=2, model=texts.model, optimizer=adam)
    found = checkpoints.resume(backend, {})
    position = Position() if found is None else Position(step=found["step"], starts=2)
    metrics = Metrics(None, after=position.step)
    stop = Stop()
    request = folder.parent / f"{folder.name}.stop"
    stop.watch(request)

    def report(record: Record) -> None:
        if compilations is not None:
            compilations.append(compiled())
        if record.step == stop_after:
            request.touch()

    run(
        Run(
            task=texts,
            order=Order(texts.lengths, batch=batch.size, seed=0, width=width),
            batch=batch,
            train=settings,
            steps=STEPS,
            backend=backend,
            optimizer=adam,
            forward=texts.model,
            checkpoints=checkpoints,
            every=100,
            identity={},
            stop=stop,
            metrics=metrics,
            report=report,
        ),
        position,
    )
    request.unlink(missing_ok=True)
    return texts, metrics.records


def compiled() -> int:
    """How many graphs torch_xla has compiled in this process."""
    data = xla_metrics.metric_data("CompileTime")
    return 0 if data is None else int(data[0])


def losses(records: Sequence[Record]) -> list[float]:
    return [record.loss for record in records]


@pytest.fixture(scope="module")
def xla() -> Backend:
    return open_backend("xla", "fp32")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Texts, list[Record]]:
    """The same run on the processor."""
    folder = tmp_path_factory.mktemp("cpu") / "checkpoints"
    return train(open_backend("cpu", "fp32"), folder)


@pytest.mark.parametrize("micro", [None, 1, 2])
def test_losses_and_gradients_are_those_of_the_processor(
    xla: Backend, reference: tuple[Texts, list[Record]], tmp_path: Path, micro: int | None
) -> None:
    _, records = train(xla, tmp_path / "checkpoints", micro=micro)
    expected = reference[1]
    assert len(records) == STEPS
    assert losses(records) == pytest.approx(losses(expected), rel=1e-5)
    norms = [record.gradient_norm for record in records]
    assert norms == pytest.approx([record.gradient_norm for record in expected], rel=1e-4)


def test_weights_are_those_of_the_processor(
    xla: Backend, reference: tuple[Texts, list[Record]], tmp_path: Path
) -> None:
    texts, _ = train(xla, tmp_path / "checkpoints")
    expected = reference[0].model.state_dict()
    for name, tensor in texts.model.state_dict().items():
        torch.testing.assert_close(tensor.cpu(), expected[name], rtol=1e-3, atol=1e-4)


@pytest.mark.case("T02")
def test_two_epochs_compile_nothing_after_the_first_steps(xla: Backend, tmp_path: Path) -> None:
    """Lengths vary, the last batch of the epoch is short, dropout and learning rate change."""
    counts: list[int] = []
    train(xla, tmp_path / "checkpoints", micro=2, dropout=0.1, compilations=counts)
    assert counts[-1] == counts[2], counts
    others: list[int] = []
    train(xla, tmp_path / "others", micro=2, dropout=0.1, compilations=others, width=None)
    assert others[-1] > counts[-1]  # what a width of its own for each batch would cost


def test_fused_adamw_is_replaced(xla: Backend) -> None:
    model = xla.place(torch.nn.Linear(2, 2))
    asked, plain = (
        make_optimizer(model, train=Train(), speed=Speed(optimizer=name), backend=xla)
        for name in ("fused-adamw", "adamw")
    )
    assert asked.defaults == plain.defaults
    assert not asked.defaults["fused"]


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(xla: Backend, tmp_path: Path) -> None:
    whole = train(xla, tmp_path / "whole", dropout=0.1)[1]
    first = train(xla, tmp_path / "parts", dropout=0.1, stop_after=2)[1]
    assert len(first) < STEPS
    second = train(xla, tmp_path / "parts", dropout=0.1)[1]
    assert losses([*first, *second]) == pytest.approx(losses(whole), rel=1e-6)


def test_a_checkpoint_of_xla_goes_on_on_the_processor(
    xla: Backend, reference: tuple[Texts, list[Record]], tmp_path: Path
) -> None:
    first = train(xla, tmp_path / "parts", stop_after=3)[1]
    second = train(open_backend("cpu", "fp32"), tmp_path / "parts")[1]
    assert losses([*first, *second]) == pytest.approx(losses(reference[1]), rel=1e-5)


def test_weights_leave_through_the_host(xla: Backend, tmp_path: Path) -> None:
    texts, _ = train(xla, tmp_path / "checkpoints")
    expected = {name: tensor.cpu() for name, tensor in texts.model.state_dict().items()}
    texts.model.to("cpu").save_pretrained(tmp_path / "model")
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert saved.keys() == expected.keys()
    for name, tensor in saved.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected[name])
