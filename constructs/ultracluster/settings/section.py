"""What every section of the settings shares."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$|^[a-z]$")]
AzId = Annotated[str, Field(pattern=r"^[a-z]{2,6}[0-9]-az[0-9]$")]
Arn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:([0-9]{12}|aws)?:.+$")]


class Section(BaseModel):
    """A table of the settings file: typed, frozen, closed to unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )
