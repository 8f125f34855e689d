"""What a fine-tuning run is told, and which of it cannot work."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from training.command import InputError
from training.core.settings import Checkpoint, Speed, Train, build, read_toml, setting

RECIPES = Path(__file__).with_name("recipes")


@dataclass(frozen=True, kw_only=True)
class Data:
    """How texts become tensors."""

    max_length: int = setting("tokens a text; what is longer is cut", 64, least=8)
    padding: Literal["auto", "fixed", "near"] = setting(
        "fixed: every batch is max_length wide; near: the next multiple of eight; auto: fixed "
        "where every new shape costs a compilation",
        "auto",
    )
    names_and_links: Literal["replace", "keep"] = setting(
        "replace: user names become @user, links become http",
        "replace",
    )
    stage: str | None = setting("folder on the node's own disk that the data are copied to", None)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One fine-tuning run.

    `model` is a folder in the transformers layout, `package:NAME` for an installed package that
    carries one, or a name on the Hugging Face hub. `data` is a file or `hub:NAME`.
    """

    model: str = setting("a folder, package:NAME, or a name on the hub")
    data: str = setting("a file of texts, or hub:NAME")
    output: str = setting("new folder for the model")
    platform: str | None = setting("platform.json of the cluster, for the cost", None)
    balance: bool = setting("give every label the same share of the loss", True)
    text: Data = field(default_factory=Data)
    train: Train = field(default_factory=Train)
    speed: Speed = field(default_factory=Speed)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    def check(self) -> None:
        """Refuse what cannot work on this machine, all problems in one line."""
        problems = []
        if self.speed.compile and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
            problems.append("speed.compile needs a C++ compiler and none was found; leave it off")
        if self.speed.compile and self.speed.device == "xla":
            problems.append("speed.compile is for cpu and cuda; xla compiles every run by itself")
        if problems:
            raise InputError("; ".join(problems))

    def public(self) -> dict[str, Any]:
        """For results: without the folders of the machine, which say nothing about the run."""
        content = asdict(self)
        for name in ("model", "data", "output", "platform"):
            del content[name]
        del content["checkpoint"]["folder"], content["text"]["stage"]
        return content


def read_settings(given: Mapping[str, Any], file: Path | None) -> Settings:
    """Settings from the recipe that fits the model, a TOML file, and what was given by hand.

    Raises:
        InputError: names every problem.
    """
    layers = [*([read_toml(file)] if file else []), given]
    models = [layer["model"] for layer in layers if isinstance(layer.get("model"), str)]
    recipe = recipe_for(models[-1]) if models else None
    if recipe is not None:
        layers.insert(0, read_toml(recipe))
    settings = build(Settings, *layers)
    settings.check()
    return settings


def recipe_for(model: str) -> Path | None:
    """The recipe of a model by its name; None for the defaults, which suit small encoders."""
    name = re.split(r"[/:]", model.rstrip("/"))[-1].lower()
    return RECIPES / "roberta-base.toml" if "roberta" in name else None


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
    try:
        folder = Path(reference).expanduser()
    except RuntimeError as error:  # ~someone who is not a user here
        raise InputError(f"no model folder {reference!r}: {error}") from error
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"the model folder {reference} has no config.json")
        return ModelSource(location=str(folder), name=folder.resolve().name, local=True)
    if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", reference):
        return ModelSource(location=reference, name=reference, local=False)
    raise InputError(
        f"no model folder {reference!r}; give a folder, package:NAME, or a name on the hub"
    )
