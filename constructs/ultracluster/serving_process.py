"""What the serving container is told, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

from shared.host import MEMORY_PER_WEIGHT, SERVER_MIB, WORKER_MIB
from ultracluster.catalog import ServingInstance
from ultracluster.settings import Endpoint

# Fewer threads than this leave a vCPU idle while a worker tokenizes; more gain little on one text.
VCPUS_PER_WORKER = 4


@dataclass(frozen=True, kw_only=True)
class ServingProcess:
    """How the server in the container runs, each value from the settings or from the instance.

    Attributes:
        workers: processes that hold the model.
        threads: of each worker.
        bf16: whether matrices are multiplied in bfloat16.
        download_seconds: to fetch and unpack the package, 60 to 3600.
        startup_seconds: to load it and answer the first ping, 60 to 3600.
        environment: of the container.
    """

    workers: int
    threads: int
    bf16: bool
    download_seconds: int
    startup_seconds: int
    environment: dict[str, str]


def serving_process(settings: Endpoint, instance: ServingInstance) -> ServingProcess:
    """The server of an endpoint on an instance."""
    workers = settings.workers or max(
        1, min(instance.vcpus // VCPUS_PER_WORKER, most_workers(settings, instance))
    )
    threads = settings.threads or max(1, instance.vcpus // workers)
    bf16 = instance.bf16 if settings.bf16 is None else settings.bf16
    return ServingProcess(
        workers=workers,
        threads=threads,
        bf16=bf16,
        download_seconds=settings.download_seconds or least_download_seconds(settings),
        startup_seconds=settings.startup_seconds or least_startup_seconds(settings),
        environment={
            "SAGEMAKER_PROGRAM": "inference.py",
            "SAGEMAKER_MODEL_SERVER_WORKERS": str(workers),
            # Setting one of these resets the others to one worker and 60 s, so all are set.
            "SAGEMAKER_TS_MIN_WORKERS": str(workers),
            "SAGEMAKER_TS_MAX_WORKERS": str(workers),
            "SAGEMAKER_TS_RESPONSE_TIMEOUT": str(settings.response_seconds),
            "TS_MAX_REQUEST_SIZE": str(settings.max_request_bytes),
            "TS_MAX_RESPONSE_SIZE": str(settings.max_request_bytes),
            "OMP_NUM_THREADS": str(threads),
            # AWS's image sets these, an own one may not.
            "DNNL_DEFAULT_FPMATH_MODE": "BF16" if bf16 else "STRICT",
            "LRU_CACHE_CAPACITY": "1024",
            "THP_MEM_ALLOC_ENABLE": "1",
        },
    )


def most_workers(settings: Endpoint, instance: ServingInstance) -> int:
    """Workers whose models fit into the instance's memory beside the server; 0 where none does."""
    free = instance.memory_gib * 1024 - SERVER_MIB
    return max(0, int(free // (settings.largest_package_mib * MEMORY_PER_WEIGHT + WORKER_MIB)))


def least_download_seconds(settings: Endpoint) -> int:
    """For the largest package at 10 MiB/s, fetched and unpacked."""
    return 60 + settings.largest_package_mib // 10


def least_startup_seconds(settings: Endpoint) -> int:
    """For the largest package at 20 MiB/s, and a minute for each of imports and warm-up."""
    return 180 + settings.largest_package_mib // 20
