"""Rules of the serving image, and of who is told."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import date, timedelta

from ultracluster.catalog import Catalog, ServingImage
from ultracluster.images import EcrImage, aws_account, aws_image, parse_image
from ultracluster.rules.problem import Problem, Problems, warning
from ultracluster.settings import Image, Settings

# A deploy that is planned now should not run out of patches within a quarter.
NEAR_DAYS = 90


def serving_image(settings: Settings, catalog: Catalog) -> Problems:
    """The image is a pinned one of a private ECR repository in the endpoint's region."""
    image = settings.endpoint.image
    region = settings.aws.region
    if image is None:
        if aws_image(catalog.graviton_image(), region) is None:
            yield Problem(
                "endpoint.image",
                f"missing; the account of AWS's images in {region} is not known: add it to "
                "[serving_images.accounts] of catalog.toml, or name an image of your own",
            )
        return
    parsed = parse_image(image.uri)
    if parsed is None:
        yield Problem(
            "endpoint.image.uri",
            f"got {image.uri!r}; allowed: ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY with "
            ":TAG or @sha256:DIGEST",
        )
        return
    if parsed.region != region:
        yield Problem(
            "endpoint.image.uri",
            f"got an image of {parsed.region}; the endpoint pulls from {region}: copy it there",
        )
    if parsed.account == aws_account(catalog.graviton_image(), parsed.region):
        yield from _one_of_aws(image, parsed, catalog)


def _one_of_aws(image: Image, parsed: EcrImage, catalog: Catalog) -> Problems:
    """AWS's own image: of an arm64 repository, with a tag that exists, and its own versions.

    Source: aws/sagemaker-python-sdk#3679 (an x86 image on ml.c7g), #5532 (tags lag).
    """
    images = catalog.graviton_images(parsed.repository)
    if images is None:
        yield Problem(
            "endpoint.image.uri",
            f"got {parsed.repository!r}, whose images are for x86; a Graviton instance needs one "
            f"of AWS's arm64 repositories: {', '.join(catalog.graviton_repositories())} "
            f"({catalog.source('serving_images')})",
        )
        return
    if parsed.tag is None:
        return
    row = images.get(parsed.tag)
    if row is None:
        yield Problem(
            "endpoint.image.uri",
            f"got the tag {parsed.tag!r}, which {parsed.repository} is not known to have; "
            f"{_nearest(parsed.tag, images)}: choose one, or add the tag to "
            f"[serving_images.images.{parsed.repository}] of catalog.toml "
            f"({catalog.source('serving_images')})",
        )
        return
    for name, given, known in (
        ("torch", image.torch, row.torch),
        ("python", image.python, row.python),
    ):
        if given != known:
            yield Problem(
                f"endpoint.image.{name}",
                f"got {given!r}; the image has {known} ({catalog.source('serving_images')})",
            )


def image_is_patched(settings: Settings, catalog: Catalog) -> Problems:
    """AWS patches an image up to a day that is known; afterwards it stays pullable.

    A synth reads no clock, so the day is held against the catalog's own date.
    """
    row = _row_in_use(settings, catalog)
    if row is None:
        return
    end = date.fromisoformat(row.patched_until)
    today = date.fromisoformat(catalog.tables["serving_images"]["date"])
    if end < today + timedelta(days=NEAR_DAYS):
        yield warning(
            "endpoint.image",
            f"{row.tag} of {row.repository} is patched until {row.patched_until} "
            f"({catalog.source('serving_images')}); it stays pullable: see docs/endpoint.md for "
            "an image of your own",
        )


def _row_in_use(settings: Settings, catalog: Catalog) -> ServingImage | None:
    image = settings.endpoint.image
    if image is None:
        return catalog.graviton_image()
    parsed = parse_image(image.uri)
    if parsed is None or parsed.tag is None:
        return None
    if parsed.account != aws_account(catalog.graviton_image(), parsed.region):
        return None
    return (catalog.graviton_images(parsed.repository) or {}).get(parsed.tag)


def _nearest(tag: str, tags: Iterable[str]) -> str:
    known = list(tags)
    close = difflib.get_close_matches(tag, known, n=2)
    return f"nearest: {', '.join(close)}" if close else f"known: {', '.join(known)}"


def approval_has_a_reader(settings: Settings, catalog: Catalog) -> Problems:
    """A request for approval that reaches nobody ends as declined."""
    hours = settings.delivery.approval_hours
    if hours is not None and settings.monitoring.email is None:
        yield warning(
            "delivery.approval_hours",
            f"got {hours}, and no address is told: name monitoring.email or subscribe to the "
            f"delivery's topic, or each model is declined after {hours} hours",
        )


def budget_has_a_reader(settings: Settings, catalog: Catalog) -> Problems:
    """A budget without an address tells nobody."""
    monitoring = settings.monitoring
    if monitoring.monthly_budget_usd is not None and monitoring.email is None:
        yield Problem("monitoring.email", "missing; monthly_budget_usd needs someone to tell")
