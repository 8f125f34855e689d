"""Own an endpoint until killed: own_sagemaker.py FOLDER ARCHIVE PYTHON, says when it serves."""

import sys
import time
from pathlib import Path

from operations.emulator.sagemaker import SageMaker


def main(folder: Path, archive: Path, python: Path) -> None:
    service = SageMaker(
        region="us-west-2",
        account="000000000000",
        work_directory=folder,
        server_python=python,
        store=lambda url, body: None,
        scaled=lambda resource: False,
        fetch=lambda url: archive,
        settle_seconds=0.1,
    )
    container = {"Image": "image", "ModelDataUrl": "s3://models/model.tar.gz"}
    service.call("CreateModel", {"ModelName": "model", "PrimaryContainer": container})
    variant = {
        "VariantName": "main",
        "ModelName": "model",
        "InstanceType": "ml.c7g.large",
        "InitialInstanceCount": 1,
    }
    config = {"EndpointConfigName": "config", "ProductionVariants": [variant]}
    service.call("CreateEndpointConfig", config)
    names = {"EndpointName": "endpoint", "EndpointConfigName": "config"}
    service.call("CreateEndpoint", names)
    while True:
        status = service.call("DescribeEndpoint", {"EndpointName": "endpoint"})["EndpointStatus"]
        if status != "Creating":
            break
        time.sleep(0.1)
    print(status, flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
