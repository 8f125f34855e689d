"""What a pre-training run and a build of shards are told, and which of it cannot work."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from training.command import InputError
from training.core.settings import Checkpoint, Speed, Train, build, read_toml, setting

RECIPES = Path(__file__).with_name("recipes")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large a new BERT is. A model that training starts from has its own."""

    layers: int = setting("transformer layers", 2, least=1)
    hidden: int = setting("width of a token", 128, least=1)
    heads: int = setting("of attention, in each layer", 2, least=1)
    intermediate: int = setting("width inside a layer", 512, least=1)
    positions: int = setting("tokens that it can take, whatever the shards have", 512, least=8)
    dropout: float = setting("share of activations dropped", 0.1, least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class PreTrain(Train):
    """As for every task, with an optimizer to choose and defaults for a small BERT."""

    epochs: int = setting("passes over the data", 1, least=1)
    batch_size: int = setting("samples a step: of all workers, or of each (scaling)", 64, least=1)
    learning_rate: float = setting("at its peak", 2e-3, above=0, below=1)
    optimizer: Literal["adamw", "lamb"] = setting(
        "LAMB is for batches of tens of thousands", "adamw"
    )


@dataclass(frozen=True, kw_only=True)
class Build:
    """How plain text becomes shards.

    Widths, shares, copies and seed are those of the reference's data set.
    """

    vocabulary_size: int = setting("tokens to learn where no vocabulary is given", 8192, least=32)
    sequence: int = setting("tokens a sample", 128, least=16, below=1 << 16)
    predictions: int = setting("most tokens to predict a sample", 20, least=1)
    masked: float = setting("share of the tokens to predict", 0.15, above=0, below=1)
    short: float = setting(
        "share of samples that are made shorter by chance", 0.1, least=0, below=1
    )
    copies: int = setting("times that the text is masked anew", 5, least=1)
    shards: int = setting("files to make", 8, least=1)
    held_out: float = setting(
        "share of the documents kept for the test shards", 0.05, least=0, below=1
    )
    documents: Literal["file", "blank-line"] = setting(
        "file: a file is a document of running text; blank-line: a line is a sentence, a blank "
        "line ends a document",
        "file",
    )
    lowercase: bool = setting("whether a new vocabulary is of lower case", True)
    seed: int = setting("of all chance", 12345, least=0, below=1 << 63)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One pre-training run."""

    output: str = setting("new folder for the model")
    data: str | None = setting("folder of shards; with text, where they are built", None)
    text: str | None = setting("a file or folder of plain text to build the shards from", None)
    vocab: str | None = setting("vocab.txt; else that beside the shards", None)
    start_from: str | None = setting("folder of a BERT to go on from, of phase 1 say", None)
    platform: str | None = setting("platform.json of the cluster, for the cost", None)
    stage: str | None = setting("folder on the node's own disk that the shards are copied to", None)
    model: Shape = field(default_factory=Shape)
    build: Build = field(default_factory=Build)
    train: PreTrain = field(default_factory=PreTrain)
    speed: Speed = field(default_factory=Speed)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    def check(self) -> None:
        """Refuse what cannot work on this machine, all problems in one line."""
        problems = []
        if self.data is None and self.text is None:
            problems.append("data is missing: folder of shards; or give text to build them from")
        if self.model.hidden % self.model.heads:
            problems.append(
                f"model.hidden is {self.model.hidden}, needs to be a multiple of model.heads, "
                f"{self.model.heads}"
            )
        if self.speed.compile and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
            problems.append("speed.compile needs a C++ compiler and none was found; leave it off")
        if self.speed.compile and self.speed.device == "xla":
            problems.append("speed.compile is for cpu and cuda; xla compiles every run by itself")
        if problems:
            raise InputError("; ".join(problems))

    @property
    def shards(self) -> Path:
        """The folder of shards."""
        return Path(self.data or f"{self.output}.shards")

    def public(self) -> dict[str, Any]:
        """For results: without the folders of the machine, which say nothing about the run."""
        content = asdict(self)
        return {
            "train": content["train"],
            "speed": content["speed"],
            "checkpoint": {name: content["checkpoint"][name] for name in ("every", "keep")},
        }


def read_settings(given: Mapping[str, Any], recipe: str | None) -> Settings:
    """Settings from a recipe, by its name or a TOML file, and what was given by hand.

    Raises:
        InputError: names every problem.
    """
    settings = build(Settings, *([read_toml(find_recipe(recipe))] if recipe else []), given)
    settings.check()
    return settings


def find_recipe(name: str) -> Path:
    """A file, or else one of the recipes that come along.

    Raises:
        InputError: it is neither; names those that there are.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    if not (found := RECIPES / f"{name}.toml").is_file():
        known = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
        raise InputError(f"no recipe {name!r}; give a .toml file, or one of {known}")
    return found
