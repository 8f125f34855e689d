"""What the serving image's entry point runs, for this machine: run_torchserve.py PROPERTIES.

The toolkit writes its settings to /etc, lets every port listen on all addresses, and takes any
TorchServe on the machine for its own; here they go to PROPERTIES, to 127.0.0.1, and to the children.
"""

# mypy: ignore-errors

import functools
import sys

import psutil
from sagemaker_pytorch_serving_container import serving, torchserve

if __name__ == "__main__":
    torchserve.TS_CONFIG_FILE = sys.argv[1]
    generate = torchserve._generate_ts_config_properties
    torchserve._generate_ts_config_properties = lambda service: generate(service).replace(
        "0.0.0.0", "127.0.0.1"
    )
    psutil.process_iter = functools.partial(psutil.Process().children, recursive=True)
    serving.main()
