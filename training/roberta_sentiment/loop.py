"""The training loop: loss, gradient, clip, step."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn.functional import cross_entropy

from training.backend import Backend
from training.command import InputError
from training.roberta_sentiment.batches import Encoded, collate, endless

WARM_UP = 0.1
CLIP = 1.0
WEIGHT_DECAY = 0.01


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where the run is. `rate` is in samples per second since the start, `left` in seconds."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    rate: float
    left: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to train: `steps` batches of `batch_size`, loss weighted by `class_weights`."""

    steps: int
    batch_size: int
    learning_rate: float
    seed: int
    class_weights: tuple[float, ...]
    compile: bool
    optimizer: Literal["fused-adamw", "adamw"]


def class_weights(labels: Sequence[int], *, classes: int) -> tuple[float, ...]:
    """Weights that give every class the same share of the loss, one on average."""
    return tuple(len(labels) / (classes * max(1, labels.count(index))) for index in range(classes))


def schedule(step: int, *, steps: int) -> float:
    """The share of the learning rate at a step (from 0): up over the first tenth, down to 0."""
    rising = max(1, round(WARM_UP * steps))
    if step < rising:
        return (step + 1) / rising
    return (steps - step) / (steps - rising + 1)


def train(
    model: Any,
    examples: Sequence[Encoded],
    *,
    plan: Plan,
    backend: Backend,
    pad: int,
    report: Callable[[Progress], None],
) -> tuple[float, int]:
    """Train in place; returns the seconds it took and the samples it saw.

    Raises:
        InputError: the loss is not a number any more.
    """
    model.to(backend.device).train()
    forward = torch.compile(model, dynamic=True) if plan.compile else model
    optimizer = _optimizer(model, plan=plan)
    weights = torch.tensor(plan.class_weights, device=backend.device)
    batches = endless(examples, batch_size=plan.batch_size, seed=plan.seed)
    seen = 0
    start = time.perf_counter()
    for step in range(plan.steps):
        batch = next(batches)
        ids, mask, labels = collate(batch, pad=pad, device=backend.device)
        rate = plan.learning_rate * schedule(step, steps=plan.steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with backend.autocast():
            logits = forward(input_ids=ids, attention_mask=mask).logits
        # The sum over the batch divided by the batch's whole weight: the same number however the
        # batch is cut into parts, which a mean of the parts' means is not.
        loss = cross_entropy(logits.float(), labels, weight=weights, reduction="sum")
        loss = loss / weights[labels].sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += len(batch)
        value = loss.item()
        if not math.isfinite(value):
            raise InputError(
                f"the loss is {value} at step {step + 1}; try a lower --learning-rate than "
                f"{plan.learning_rate}"
            )
        elapsed = time.perf_counter() - start
        report(
            Progress(
                step=step + 1,
                steps=plan.steps,
                loss=value,
                learning_rate=rate,
                rate=seen / elapsed,
                left=elapsed / (step + 1) * (plan.steps - step - 1),
            )
        )
    return time.perf_counter() - start, seen


def _optimizer(model: Any, *, plan: Plan) -> torch.optim.AdamW:
    """AdamW; biases and normalisation weights (one dimension) do not decay."""
    matrices = [tensor for tensor in model.parameters() if tensor.ndim > 1]
    vectors = [tensor for tensor in model.parameters() if tensor.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.learning_rate, fused=plan.optimizer == "fused-adamw")
