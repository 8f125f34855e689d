"""`[endpoint]`, `[delivery]` and `[monitoring]`: serving, the road to it, and who is told."""

from __future__ import annotations

from pydantic import Field

from ultracluster.settings.section import Name, Section


class Endpoint(Section):
    """`[endpoint]`: the SageMaker endpoint that serves the newest accepted model."""

    model_name: Name = "sentiment"
    """Only manifests under models/<model_name>/ are delivered."""
    instance_type: str = "ml.c7g.4xlarge"
    """SageMaker type of a Graviton family."""
    instance_count: int = Field(default=1, ge=1, le=1000)
    """Instances behind the endpoint."""
    image: str | None = None
    """URI of an own arm64 image; unset takes AWS's PyTorch image from the catalog."""
    startup_seconds: int = Field(default=300, ge=60, le=3600)
    """Time for the container to load the model and answer its first ping."""


class Delivery(Section):
    """`[delivery]`: the road from a published model to the endpoint."""

    minimum_macro_f1: float = Field(default=0.6, ge=0, le=1, strict=False)
    """A model below this on its own evaluation set is refused."""
    approval_hours: int | None = Field(default=None, ge=1, le=168)
    """Time for a person to approve an accepted model; unset rolls it out without asking."""
    poll_seconds: int = Field(default=30, ge=1, le=300)
    """Pause between two looks at a roll-out that is under way."""


class Monitoring(Section):
    """`[monitoring]`: who is told, and at what."""

    email: str | None = Field(default=None, pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")
    """Gets the alarms and the budget's notices; unset makes no alarms."""
    monthly_budget_usd: int | None = Field(default=None, ge=1)
    """Notices at 80 % spent and at 100 % forecast; unset makes no budget."""
