"""What SageMaker's own SDK says of the serving image; runs in .venv-oracle.

Reads `{"version", "instance_type"}` from standard input and writes the image's URI by region, and
the versions of PyTorch that there are for Graviton.
"""

# mypy: ignore-errors

import json
import os
import sys
from importlib.resources import files

os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
os.environ.setdefault("AWS_DEFAULT_REGION", "us-west-2")

from sagemaker.core.image_uris import retrieve


def main() -> None:
    """Answer for every region that the SDK has the image in."""
    asked = json.load(sys.stdin)
    tables = files("sagemaker.core").joinpath("image_uri_config", "pytorch.json")
    versions = json.loads(tables.read_text())["inference_graviton"]["versions"]
    images = {
        region: retrieve("pytorch", region, image_scope="inference", **asked)
        for region in versions[asked["version"]]["registries"]
    }
    json.dump({"images": images, "versions": list(versions)}, sys.stdout)


if __name__ == "__main__":
    main()
