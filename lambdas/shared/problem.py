"""One reason to refuse a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A stable word and a sentence.

    Words that begin with `instance-` speak about the instance that would serve: another one may
    take the same bytes. All others speak about the bytes alone.
    """

    reason: str
    message: str

    @property
    def of_instance(self) -> bool:
        """Whether another instance may serve what this one cannot."""
        return self.reason.startswith("instance-")

    def __str__(self) -> str:
        """Word and sentence, as verdicts and messages show them."""
        return f"{self.reason}: {self.message}"
