"""Settings of a run: TOML files and `--set a.b=c`, read into frozen dataclasses.

All problems are told at once. A settings class is a frozen dataclass of plain values and of other
such classes; `setting` gives a value its default, its bounds and its meaning.
"""

import dataclasses
import difflib
import math
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from training.command import InputError

Kind = TypeVar("Kind")

LARGEST = sys.float_info.max


def setting(
    meaning: str,
    default: Any = MISSING,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field with its meaning (units included) and the numbers that it may take."""
    bounds = {"least": least, "above": above, "below": below}
    return field(default=default, metadata={"meaning": meaning, **bounds})


@dataclass(frozen=True, kw_only=True)
class Train:
    """What decides the trained weights, whatever the hardware."""

    epochs: int = setting("passes over the data", 3, least=1)
    max_steps: int | None = setting("steps, in place of epochs", None, least=1)
    batch_size: int = setting("texts a step: of all workers, or of each (scaling)", 32, least=1)
    micro_batch_size: int | None = setting("texts a worker takes at once", None, least=1)
    scaling: Literal["strong", "weak"] = setting(
        "strong: batch_size is that of all workers, however many; weak: that of each worker, and "
        "the learning rate grows with the square root of their number",
        "strong",
    )
    learning_rate: float = setting("at its peak", 1e-4, above=0, below=1)
    warm_up: float = setting("share of the steps in which the rate rises", 0.1, least=0, below=1)
    weight_decay: float = setting("of matrices; vectors do not decay", 0.01, least=0, below=1)
    clip: float = setting("longest gradient", 1.0, above=0)
    seed: int = setting("of weights, order and dropout", 0, least=0, below=1 << 63)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What decides how fast, one switch each."""

    device: Literal["auto", "cpu", "cuda", "xla"] = setting("what computes", "auto")
    precision: Literal["auto", "bf16", "fp32"] = setting("of the forward pass", "auto")
    compile: bool = setting("torch.compile", False)
    optimizer: Literal["fused-adamw", "adamw"] = setting("one kernel, or plain", "fused-adamw")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When and where the state of a run is kept."""

    every: int = setting("steps between two checkpoints", 200, least=1)
    keep: int = setting("how many stay", 2, least=1)
    folder: str | None = setting("a folder, or s3://bucket/prefix; else beside the output", None)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        InputError: it cannot be read, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot read the settings {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of 5,000 digits
        raise InputError(f"{path} is not TOML: {error}") from error


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Nested settings from texts `a.b=c`; c is a TOML value, or else a text.

    Raises:
        InputError: a text has no `=`.
    """
    result: dict[str, Any] = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        if not equals or not all(path.split(".")):
            raise InputError(f"--set {text!r} is not name=value, such as train.seed=1")
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except (ValueError, RecursionError):
            parsed = value
        assign(result, path.strip(), parsed)
    return result


def assign(target: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b` in nested dictionaries."""
    *parents, last = path.split(".")
    for parent in parents:
        inner = target.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise InputError(f"{path}: {parent} has a value already, and cannot hold {last}")
        target = inner
    target[last] = value


def build(kind: type[Kind], *layers: Mapping[str, Any]) -> Kind:
    """Settings from layers, of which a later one wins.

    Raises:
        InputError: names every unknown name, missing value and value that is not allowed.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer)
    problems: list[str] = []
    result = _build(kind, merged, "", problems)
    if problems:
        raise InputError("; ".join(problems))
    return result  # type: ignore[no-any-return]


def _merge(target: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        if isinstance(value, Mapping) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            target[name] = dict(value) if isinstance(value, Mapping) else value


def _build(kind: Any, given: Mapping[str, Any], prefix: str, problems: list[str]) -> Any:
    """One settings class; None where it has problems."""
    fields = {one.name: one for one in dataclasses.fields(kind)}
    hints = get_type_hints(kind)
    before = len(problems)
    for name in given:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else f"; known: {', '.join(fields)}"
            problems.append(f"{prefix}{name} is not a setting{hint}")
    values: dict[str, Any] = {}
    for name, one in fields.items():
        path = f"{prefix}{name}"
        if dataclasses.is_dataclass(hints[name]):
            inner = given.get(name, {})
            if isinstance(inner, Mapping):
                values[name] = _build(hints[name], inner, f"{path}.", problems)
            else:
                problems.append(f"{path} is {inner!r}, needs to be a table of settings")
        elif name in given:
            values[name] = _checked(path, given[name], hints[name], one.metadata, problems)
        elif one.default is MISSING:
            problems.append(f"{path} is missing: {one.metadata['meaning']}")
    return kind(**values) if len(problems) == before else None


def _checked(
    path: str, value: Any, hint: Any, bounds: Mapping[str, Any], problems: list[str]
) -> Any:
    """A value of the type that the setting has; notes what is wrong with it."""
    allowed = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = allowed[0]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            problems.append(f"{path} is {value!r}, allowed: {', '.join(map(str, get_args(kind)))}")
        return value
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < LARGEST else math.inf if value > 0 else -math.inf
    if type(value) is not kind:
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        problems.append(f"{path} is {value!r}, needs to be {names[kind]}")
        return value
    least, above, below = (bounds[name] for name in ("least", "above", "below"))
    if least is not None and not value >= least:
        problems.append(f"{path} is {value}, needs to be {least} or more")
    if above is not None and not value > above:
        problems.append(f"{path} is {value}, needs to be above {above}")
    if below is not None and not value < below:
        problems.append(f"{path} is {value}, needs to be below {below}")
    return value
