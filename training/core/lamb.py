"""LAMB, for batches of tens of thousands of samples.

You et al., Large Batch Optimization for Deep Learning (2020), as timm's `Lamb` has it with
`trust_clip`, which the reference trains with: the step of each tensor is as long as its weights,
and never longer than Adam's.
"""

from collections.abc import Iterable
from typing import Any

import torch


class Lamb(torch.optim.Optimizer):  # type: ignore[misc]
    """AdamW whose step is scaled, a tensor at a time, by weight norm over step norm, at most one.

    Tensors without weight decay (biases, normalisation) take Adam's step as it is. The state is in
    the type of the weights, which are float32. Gradients are clipped before, by the loop.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def step(self) -> None:
        """Take one step."""
        with torch.no_grad():
            for group in self.param_groups:
                weights = [tensor for tensor in group["params"] if tensor.grad is not None]
                if weights:
                    self._step(weights, group)

    def _step(self, weights: list[torch.Tensor], group: dict[str, Any]) -> None:
        """Step the tensors of a group together."""
        first, second = group["betas"]
        for tensor in weights:
            if not self.state[tensor]:
                self.state[tensor] = {
                    "step": torch.zeros(()),  # on the host: a number that the device need not sync
                    "mean": torch.zeros_like(tensor),
                    "square": torch.zeros_like(tensor),
                }
        states = [self.state[tensor] for tensor in weights]
        gradients = [tensor.grad for tensor in weights]
        means = [state["mean"] for state in states]
        squares = [state["square"] for state in states]
        for state in states:
            state["step"] += 1
        count = float(states[0]["step"])
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        scales = torch._foreach_sqrt(squares)
        torch._foreach_div_(scales, (1 - second**count) ** 0.5)
        torch._foreach_add_(scales, group["eps"])
        steps = torch._foreach_div(means, 1 - first**count)
        torch._foreach_div_(steps, scales)
        if group["weight_decay"]:
            torch._foreach_add_(steps, weights, alpha=group["weight_decay"])
            lengths, targets = torch._foreach_norm(steps), torch._foreach_norm(weights)
            # One where either is zero: weights that start there must be able to leave.
            ratios = [
                torch.where((target > 0) & (length > 0), target / length, 1.0).clamp(max=1.0)
                for target, length in zip(targets, lengths, strict=True)
            ]
            torch._foreach_mul_(steps, ratios)
        torch._foreach_add_(weights, steps, alpha=-group["lr"])
