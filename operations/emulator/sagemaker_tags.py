"""Tags of the emulated SageMaker's resources."""

from __future__ import annotations

from operations.emulator.sagemaker_requests import ApiError, Json

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AddTags.html
_MOST = 50


class Tags:
    """Tags by ARN; an ARN's key has one value."""

    def __init__(self) -> None:
        self._tags: dict[str, dict[str, str]] = {}

    def add(self, arn: str, tags: list[Json]) -> list[Json]:
        """Add or replace tags; returns all that the resource has now.

        Raises:
            ApiError: more than 50 tags.
        """
        merged = self._tags.get(arn, {}) | {tag["Key"]: tag["Value"] for tag in tags}
        if len(merged) > _MOST:
            raise ApiError(
                "ResourceLimitExceeded",
                f'The resource "{arn}" would have {len(merged)} tags, {_MOST} are allowed.',
            )
        self._tags[arn] = merged
        return self.of(arn)

    def remove(self, arn: str, keys: list[str]) -> None:
        """Remove the tags with these keys."""
        for key in keys:
            self._tags.get(arn, {}).pop(key, None)

    def of(self, arn: str) -> list[Json]:
        """The tags of one resource, as they go on the wire."""
        return [{"Key": key, "Value": value} for key, value in self._tags.get(arn, {}).items()]

    def forget(self, arn: str) -> None:
        """Drop what a deleted resource had."""
        self._tags.pop(arn, None)
