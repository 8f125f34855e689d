"""What a fine-tuning run is told, and which of it cannot work."""

import re
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from training.command import InputError

DEFAULT_EPOCHS = 3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One fine-tuning run.

    `model` is a folder in the transformers layout, `package:NAME` for an installed package that
    carries one, or a name on the Hugging Face hub. `max_length` is in tokens.
    """

    model: str
    data: Path
    output: Path
    epochs: int | None
    max_steps: int | None
    batch_size: int
    learning_rate: float
    max_length: int
    seed: int
    precision: Literal["auto", "bf16", "fp32"]
    compile: bool
    optimizer: Literal["fused-adamw", "adamw"]

    def check(self) -> None:
        """Refuse what cannot work, all problems in one line."""
        problems = [
            f"--{name.replace('_', '-')} is {value}, needs to be {least} or more"
            for name, value, least in (
                ("epochs", self.epochs, 1),
                ("max_steps", self.max_steps, 1),
                ("batch_size", self.batch_size, 1),
                ("max_length", self.max_length, 8),
                ("seed", self.seed, 0),
            )
            if value is not None and value < least
        ]
        if not 0 < self.learning_rate < 1:
            problems.append(f"--learning-rate is {self.learning_rate}, needs to be in 0 to 1")
        if self.compile and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
            problems.append("--compile needs a C++ compiler and none was found; use --no-compile")
        if problems:
            raise InputError("; ".join(problems))


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Where a base model is loaded from: a local folder, or else a name on the hub."""

    location: str
    name: str
    local: bool


def find_model(reference: str) -> ModelSource:
    """Turn the `--model` value into a folder or a hub name, without touching the network.

    Raises:
        InputError: the package is not installed or holds no model, or the folder is missing.
    """
    if reference.startswith("package:"):
        package = reference.removeprefix("package:")
        spec = find_spec(package) if package.isidentifier() else None
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"no installed package {package!r}; see requirements/training.in")
        folder = Path(next(iter(spec.submodule_search_locations))) / "model"
        if not (folder / "config.json").is_file():
            raise InputError(f"the package {package!r} holds no model folder")
        return ModelSource(location=str(folder), name=reference, local=True)
    folder = Path(reference).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"the model folder {reference} has no config.json")
        return ModelSource(location=str(folder), name=folder.resolve().name, local=True)
    if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", reference):
        return ModelSource(location=reference, name=reference, local=False)
    raise InputError(
        f"no model folder {reference!r}; give a folder, package:NAME, or a name on the hub"
    )
