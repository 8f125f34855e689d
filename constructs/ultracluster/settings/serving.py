"""`[delivery]` and `[monitoring]`: the road to the endpoint, and who is told."""

from __future__ import annotations

from pydantic import Field

from ultracluster.settings.section import Section


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
    """Subscribed to the topic of deliveries and alarms, and gets the budget's notices."""
    monthly_budget_usd: int | None = Field(default=None, ge=1)
    """Notices at 80 % spent and at 100 % forecast; unset makes no budget."""
