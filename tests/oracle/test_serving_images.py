"""The table of serving images against SageMaker's own SDK."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.environments import ROOT
from ultracluster.catalog import load_catalog
from ultracluster.images import aws_image

PYTHON = ROOT / ".venv-oracle" / "bin" / "python"


@pytest.fixture(scope="module")
def sdk() -> dict[str, Any]:
    """What the SDK says of the catalog's image on the default instance."""
    asked = {"version": load_catalog().graviton_image().torch, "instance_type": "ml.c7g.4xlarge"}
    done = subprocess.run(
        [PYTHON, ROOT / "tests" / "support" / "sagemaker_images.py"],
        cwd=ROOT,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.case("M02")
def test_the_image_of_every_region_is_the_sdks(sdk: dict[str, Any]) -> None:
    row = load_catalog().graviton_image()
    ours = {region: aws_image(row, region) for region in sdk["images"]}
    assert {region: image and image.uri for region, image in ours.items()} == sdk["images"]
    assert len(ours) > 30


@pytest.mark.case("M02")
def test_there_is_no_newer_image_than_the_catalogs(sdk: dict[str, Any]) -> None:
    newest = max(sdk["versions"], key=lambda text: [int(part) for part in text.split(".")])
    assert newest == load_catalog().graviton_image().torch
