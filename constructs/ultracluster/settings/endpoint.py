"""`[endpoint]`: the SageMaker endpoint that serves the newest accepted model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ultracluster.settings.section import Arn, Name, Section

# What InvokeEndpoint takes (SageMaker endpoints and quotas, "maximum payload size").
MOST_REQUEST_BYTES = 6_291_456


class Image(Section):
    """`[endpoint.image]`: an own arm64 image in Amazon ECR instead of AWS's."""

    uri: str
    """ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY with :TAG or @sha256:DIGEST."""
    torch: str = Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    """PyTorch in it, such as 2.8.0: a package that needs a newer one is refused."""
    python: str = Field(pattern=r"^3\.[0-9]+$")
    """Python in it, such as 3.12: a package built for another one is refused."""


class Alarms(Section):
    """`[endpoint.alarms]`: what takes a roll-out back while it bakes, and tells a person later."""

    error_percent: float = Field(default=5, gt=0, le=100, strict=False)
    """Share of the requests of a minute that fail with the container's own error (5xx)."""
    latency_ms: int = Field(default=5000, ge=1, le=60_000)
    """The model's p99 answer time; InvokeEndpoint gives up after 60,000."""
    least_requests: int = Field(default=20, ge=1)
    """A minute with fewer requests says nothing about share or time: one error never counts."""


class Scaling(Section):
    """`[endpoint.scaling]`: more instances under load, back to `instance_count` without."""

    max_count: int = Field(ge=1, le=1000)
    """Most instances; `instance_count` is the least."""
    requests_per_minute: int = Field(ge=1)
    """Load of one instance to hold: what it bears by your own measurement, less a reserve."""
    scale_out_seconds: int = Field(default=60, ge=0, le=3600)
    """Pause after more instances before still more."""
    scale_in_seconds: int = Field(default=300, ge=0, le=3600)
    """Pause after fewer instances before still fewer."""


class Capture(Section):
    """`[endpoint.capture]`: keeps requests and answers in S3; texts may be personal data."""

    percent: int = Field(default=100, ge=1, le=100)
    """Share of the requests that is kept."""
    bucket: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    """A bucket of this account and region; unset takes the environment's data bucket."""
    prefix: str = Field(default="captured", pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$")
    """Where in the bucket; nothing there is deleted by itself."""
    key_arn: Arn | None = None
    """KMS key of what is kept; unset takes the bucket's own encryption."""


class Endpoint(Section):
    """`[endpoint]`: the SageMaker endpoint that serves the newest accepted model."""

    model_name: Name = "sentiment"
    """Only manifests under models/<model_name>/ are delivered."""
    instance_type: str = "ml.c7g.4xlarge"
    """SageMaker type of a Graviton family; a change while scaling is on takes two deploys."""
    instance_count: int = Field(default=1, ge=1, le=1000)
    """Instances behind the endpoint; a roll-out needs the same number once more."""
    image: Image | None = None
    """Unset takes AWS's PyTorch image from the catalog."""
    largest_package_mib: int = Field(default=4096, ge=1, le=5120)
    """Largest model.tar.gz to reckon with: workers, memory and time limits follow from it."""
    download_seconds: int | None = Field(default=None, ge=60, le=3600)
    """Time to fetch and unpack a package; unset is 60 s and 1 s for each 10 MiB of the largest."""
    startup_seconds: int | None = Field(default=None, ge=60, le=3600)
    """Time to load the model and answer the first ping; unset is 180 s and 1 s for each 20 MiB."""
    response_seconds: int = Field(default=60, ge=1, le=60)
    """Time for one answer; InvokeEndpoint gives up after 60."""
    max_request_bytes: int = Field(default=MOST_REQUEST_BYTES, ge=1024, le=MOST_REQUEST_BYTES)
    """Largest request and answer; SageMaker takes 6,291,456, base64 counts as it is sent."""
    workers: int | None = Field(default=None, ge=1)
    """Processes, each with the model; unset is one for 4 vCPUs, or as many as memory holds."""
    threads: int | None = Field(default=None, ge=1)
    """Threads of each worker; unset shares the vCPUs out."""
    bf16: bool | None = None
    """Multiplies matrices in bfloat16; unset does where the processor can: Graviton3 and later."""
    traffic: Literal["all-at-once", "canary", "linear"] = "all-at-once"
    """How requests move to a new model: all, a few and then all, or step by step."""
    step_instances: int = Field(default=1, ge=1)
    """Instances in the canary or in each step, at most half of `instance_count`."""
    step_minutes: int = Field(default=5, ge=1, le=60)
    """Pause after the canary, or after each step."""
    bake_minutes: int = Field(default=10, ge=0, le=60)
    """The old fleet stays this long after the last step; an alarm meanwhile brings it back."""
    vpc: bool = False
    """Puts the container into the private subnets of both zones, in a security group of its own."""
    alarms: Alarms = Alarms()
    """What takes a roll-out back."""
    scaling: Scaling | None = None
    """Unset keeps `instance_count` instances."""
    capture: Capture | None = None
    """Unset keeps nothing."""

    @property
    def most_instances(self) -> int:
        """Instances under the highest load."""
        return self.scaling.max_count if self.scaling else self.instance_count

    @property
    def pause_minutes(self) -> int:
        """Minutes that a roll-out waits on purpose at most: between steps, and for the bake."""
        pauses = {
            "all-at-once": 0,
            "canary": 1,
            # After the last step comes the bake.
            "linear": -(-self.most_instances // self.step_instances) - 1,
        }
        return pauses[self.traffic] * self.step_minutes + self.bake_minutes
