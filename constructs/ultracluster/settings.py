"""The settings of one environment, read from `config/<environment>.toml`."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

DEFAULT_ENVIRONMENT = "dev"

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,19}$")]
QueueName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,24}$")]


class SettingsError(Exception):
    """Settings that cannot be used; `str()` lists every problem, one a line."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Aws(_Section):
    """Where the environment lives."""

    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    account: str | None = Field(default=None, pattern=r"^\d{12}$")
    """Twelve digits; unset takes the account of the credentials at deploy."""


class Network(_Section):
    """The VPC around the accelerators."""

    accelerator_az_id: str = Field(pattern=r"^[a-z]{2,6}\d-az\d$")
    """An AZ *id* such as usw2-az4: AZ names differ from account to account."""
    cidr: str = Field(default="10.0.0.0/16", pattern=r"^\d{1,3}(\.\d{1,3}){3}/(1[6-9]|2[0-2])$")
    """IPv4 range of the VPC, /16 to /22."""


class Lustre(_Section):
    """The shared file system of the cluster, mounted at /fsx."""

    deployment_type: Literal["SCRATCH_2", "PERSISTENT_2"] = "SCRATCH_2"
    capacity_gib: int = 1200
    """GiB: 1200 or a multiple of 2400."""
    throughput_mb_per_tib: Literal[125, 250, 500, 1000] | None = None
    """MB/s for each TiB; PERSISTENT_2 only, and required there."""


class Queue(_Section):
    """One Slurm queue of equal nodes."""

    name: QueueName
    instance_type: str = "trn1.32xlarge"
    min_count: int = Field(default=0, ge=0)
    """Nodes that run, and bill, all the time; with 0 creation needs no capacity."""
    max_count: int = Field(default=2, ge=1)
    """Nodes that Slurm may power up."""


class Cluster(_Section):
    """The ParallelCluster cluster."""

    os: Literal["alinux2023", "ubuntu2204", "ubuntu2404"] = "ubuntu2204"
    head_node: str = "c5.4xlarge"
    """EC2 type of the head node, x86 as Trn1 is."""
    queues: tuple[Queue, ...] = Field(min_length=1, max_length=50, strict=False)


class Endpoint(_Section):
    """The SageMaker endpoint that serves the newest accepted model."""

    model_name: Name = "sentiment"
    """Only manifests under models/<model_name>/ are delivered."""
    instance_type: str = "ml.c7g.4xlarge"
    instance_count: int = Field(default=1, ge=1)
    image: str | None = None
    """URI of an own arm64 image; unset takes AWS's PyTorch image from the catalog."""
    startup_seconds: int = Field(default=300, ge=60, le=3600)
    """Time for the container to load the model and answer its first ping."""


class Delivery(_Section):
    """The road from a published model to the endpoint."""

    minimum_macro_f1: float = Field(default=0.6, ge=0, le=1)
    """A model below this on its own evaluation set is refused."""
    poll_seconds: int = Field(default=30, ge=1, le=300)
    """Pause between two looks at a roll-out that is under way."""


class Settings(_Section):
    """All settings of one environment."""

    environment: Name
    name: Name = "ultracluster"
    retention: Literal["retain", "destroy"] = "retain"
    """What `cdk destroy` does with buckets and logs."""
    aws: Aws
    network: Network
    lustre: Lustre = Lustre()
    cluster: Cluster
    endpoint: Endpoint = Endpoint()
    delivery: Delivery = Delivery()

    @property
    def prefix(self) -> str:
        """`<name>-<environment>`: what every stack and physical name starts with."""
        return f"{self.name}-{self.environment}"


def load_settings(environment: str, directory: Path) -> Settings:
    """Read and check `<directory>/<environment>.toml`.

    Raises:
        SettingsError: the file is missing, is not TOML, or breaks the schema; all problems at once.
    """
    path = directory / f"{environment}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in directory.glob("*.toml"))) or "none"
        raise SettingsError(
            f"no settings for environment {environment!r}: {path} does not exist; "
            f"environments here: {known}; choose one with `-c environment=NAME`"
        )
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    try:
        return Settings.model_validate({"environment": environment, **values})
    except ValidationError as error:
        problems = list(_problems(error))
        lines = "\n".join(f"  {line}" for line in problems)
        raise SettingsError(f"{path}: {len(problems)} problem(s)\n{lines}") from None


def _problems(error: ValidationError) -> Iterator[str]:
    items = error.errors(include_url=False)
    for item in items:
        if any(_inside(other["loc"], item["loc"]) for other in items):
            continue  # a list is short only because its items were refused
        path = _path(item["loc"])
        if item["type"] == "extra_forbidden":
            yield f"{path}: unknown key{_nearest(item['loc'])}"
        elif item["type"] == "missing":
            yield f"{path}: missing; add it"
        else:
            message = item["msg"][0].lower() + item["msg"][1:]
            yield f"{path}: got {item['input']!r}; {message}"


def _inside(location: tuple[int | str, ...], outer: tuple[int | str, ...]) -> bool:
    return len(location) > len(outer) and location[: len(outer)] == outer


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _nearest(location: tuple[int | str, ...]) -> str:
    section: Any = Settings
    for part in location[:-1]:
        if isinstance(part, str):
            section = _section(section.model_fields[part].annotation)
    known = list(section.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; allowed: {', '.join(known)}"


def _section(annotation: Any) -> Any:
    return Queue if annotation == tuple[Queue, ...] else annotation
