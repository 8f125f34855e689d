"""Bring the containers of the emulated SageMaker up, and all of them down."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from operations.emulator.sagemaker_endpoint import Release
from operations.emulator.sagemaker_fleet import BAD_ARCHIVE, Fleet

logger = logging.getLogger(__name__)

Fetch = Callable[[str], bytes | Path]


class LaunchError(Exception):
    """A release that did not come up; its text is the endpoint's FailureReason."""


class Launcher:
    """Makes fleets and ends them.

    Args:
        server_python: the interpreter of the model servers.
        fetch: gives the object at an ``s3://`` URL; raises FileNotFoundError if there is none.
        work_directory: holds the containers' folders and logs.
        region: given to the containers as ``SAGEMAKER_REGION``.
        startup_seconds: a container's time until the first good ping, where the variant has no
            ``ContainerStartupHealthCheckTimeoutInSeconds``.
    """

    def __init__(
        self,
        *,
        server_python: Path,
        fetch: Fetch,
        work_directory: Path,
        region: str,
        startup_seconds: float,
    ) -> None:
        # Absolute, but not resolved: a virtual environment's python is a link.
        self._server_python = server_python.absolute()
        self._fetch = fetch
        self._work_directory = work_directory.absolute()
        self._region = region
        self._startup_seconds = startup_seconds
        self._lock = threading.Lock()
        self._fleets: set[Fleet] = set()
        self._numbers = itertools.count(1)
        self.closing = threading.Event()

    def launch(self, endpoint: str, release: Release) -> Fleet:
        """A healthy fleet of this release.

        Raises:
            LaunchError: there is none, for a reason in the words of the real service.
        """
        fleet = self._new_fleet(endpoint, release)
        try:
            self._start(endpoint, fleet, release)
        except LaunchError:
            self.end(fleet)
            raise
        except Exception as error:
            # Nothing of the model's: an unreadable store, no such interpreter. An endpoint must
            # not stay in progress for ever because of it.
            logger.exception("endpoint %s: the model server could not be started", endpoint)
            self.end(fleet)
            raise LaunchError(f"Request to service failed: {error}") from error
        return fleet

    def end(self, fleet: Fleet, *, drain: bool = False) -> None:
        """End a fleet, at once or after the requests under way."""
        if drain:
            fleet.drain()
        fleet.stop()
        with self._lock:
            self._fleets.discard(fleet)

    def close(self) -> None:
        """End every fleet and let none begin."""
        with self._lock:
            self.closing.set()
            fleets = list(self._fleets)
        for fleet in fleets:
            fleet.stop()

    def _new_fleet(self, endpoint: str, release: Release) -> Fleet:
        title = f"{endpoint}-{next(self._numbers)}"
        fleet = Fleet(
            python=self._server_python,
            directory=self._work_directory / "containers" / title,
            log=self._work_directory / "logs" / f"{title}.log",
            environment={
                **release.container.get("Environment", {}),
                "SAGEMAKER_REGION": self._region,
            },
        )
        with self._lock:
            self._fleets.add(fleet)
            if self.closing.is_set():
                fleet.stop()
        return fleet

    def _start(self, endpoint: str, fleet: Fleet, release: Release) -> None:
        url = release.container["ModelDataUrl"]
        try:
            archive = self._fetch(url)
        except FileNotFoundError:
            raise LaunchError(
                f'Failed to download model data for container "container_1" from URL: "{url}". '
                "Please ensure that there is an object located at the URL and that the role passed "
                "to CreateModel has permissions to download the object."
            ) from None
        fleet.start(archive)
        logger.info(
            "endpoint %s: model %s starts, its log is %s", endpoint, release.model.name, fleet.log
        )
        limit = release.variant.get(
            "ContainerStartupHealthCheckTimeoutInSeconds", self._startup_seconds
        )
        if fleet.becomes_healthy(limit_seconds=limit, cancelled=self.closing):
            return
        status = fleet.exit_status()
        logger.warning(
            "endpoint %s: model %s %s; its log is %s",
            endpoint,
            release.model.name,
            f"gave no good ping in {limit:g} s" if status is None else f"ended, status {status}",
            fleet.log,
        )
        if status == BAD_ARCHIVE:
            raise LaunchError(
                f'Failed to extract model data archive for container "container_1" from URL '
                f'"{url}". Please ensure that the object located at the URL is a valid tar.gz '
                "archive."
            )
        raise LaunchError(
            f"The primary container for production variant {release.variant['VariantName']} did "
            "not pass the ping health check. Please check CloudWatch logs for this endpoint."
        )
