"""The recipes of the pre-training, as far as an estimate needs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from training.bert_pretraining.settings import find_recipe
from training.core.settings import read_toml

PHASES = (1, 2)
OPTIMIZERS = ("lamb", "adamw")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One part of a pre-training, by one recipe.

    `batch` is sequences a step of all workers, `micro` what a worker takes at once, `tokens` the
    length of a sequence.
    """

    phase: int
    tokens: int
    batch: int
    micro: int
    steps: int
    learning_rate: float

    @property
    def sequences(self) -> int:
        """In all."""
        return self.batch * self.steps


@cache
def read_recipes() -> Mapping[str, Sequence[Phase]]:
    """Both phases of BERT-large, by optimizer."""
    return {optimizer: [_phase(phase, optimizer) for phase in PHASES] for optimizer in OPTIMIZERS}


def _phase(phase: int, optimizer: str) -> Phase:
    content = read_toml(find_recipe(f"bert-large-phase{phase}-{optimizer}"))
    train = content["train"]
    return Phase(
        phase=phase,
        tokens=content["build"]["sequence"],
        batch=train["batch_size"],
        micro=train["micro_batch_size"],
        steps=train["max_steps"],
        learning_rate=train["learning_rate"],
    )
