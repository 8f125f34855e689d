"""The endpoints of the emulated SageMaker: their states, and the roll-outs that move them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from operations.emulator.sagemaker_endpoint import Capacity, Endpoint, Release
from operations.emulator.sagemaker_fleet import Fleet
from operations.emulator.sagemaker_launcher import Launcher, LaunchError
from operations.emulator.sagemaker_requests import Json, validation_error

logger = logging.getLogger(__name__)

_BETWEEN_LOOKS_SECONDS = 0.1
_IN_PROGRESS = ("Creating", "Updating", "RollingBack", "Deleting")


class Endpoints:
    """All endpoints; an endpoint changes under one lock, its slow work runs on a thread.

    Args:
        launcher: makes and ends the fleets.
        settle_seconds: how long RollingBack, Deleting, a change of capacity and a minute of a bake
            last.
        ringing: which of these alarms are in ALARM.
    """

    def __init__(
        self,
        *,
        launcher: Launcher,
        settle_seconds: float,
        ringing: Callable[[list[str]], list[str]],
    ) -> None:
        self._launcher = launcher
        self._ringing = ringing
        self._settle_seconds = settle_seconds
        self._lock = threading.RLock()
        self._endpoints: dict[str, Endpoint] = {}
        self._threads: set[threading.Thread] = set()

    def create(self, name: str, arn: str, release: Release, deployment: Json | None) -> None:
        """Begin an endpoint; a name is taken whatever its case."""
        with self._lock:
            if name.lower() in self._endpoints:
                raise validation_error(f'Cannot create already existing endpoint "{arn}".')
            now = time.time()
            endpoint = Endpoint(
                name=name,
                arn=arn,
                release=release,
                desired=Capacity.of(release),
                created=now,
                modified=now,
                deployment=deployment,
            )
            self._endpoints[name.lower()] = endpoint
            self._in_background(self._create, endpoint)

    def update(
        self, name: str, arn: str, release: Release, *, retained: set[str], deployment: Json | None
    ) -> None:
        """Begin the roll-out of another release beside the one that serves.

        Args:
            name: the endpoint's name.
            arn: its ARN.
            release: what shall serve.
            retained: which of DesiredInstanceCount and DesiredWeight stay as they are.
            deployment: the deployment configuration to remember; None keeps the last one.
        """
        with self._lock:
            endpoint = self._settled(name, arn)
            if endpoint.status == "Failed":
                raise validation_error(f'Cannot update failed endpoint "{arn}".')
            endpoint.pending = release
            endpoint.deployment = deployment or endpoint.deployment
            kept = {
                "DesiredInstanceCount": endpoint.desired.instances,
                "DesiredWeight": endpoint.desired.weight,
            }
            desired = Capacity.of(release).changed(
                {member: kept[member] for member in retained & kept.keys()}
            )
            self._move(endpoint, "Updating")
            self._in_background(self._update, endpoint, release, desired)

    def resize(self, name: str, arn: str, desired: Json) -> None:
        """Begin a change of the variant's instance count or weight."""
        with self._lock:
            endpoint = self._settled(name, arn)
            config = endpoint.release.config
            if desired["VariantName"] != endpoint.release.variant["VariantName"]:
                raise validation_error(
                    f'The variant name(s) "{desired["VariantName"]}" is/are not present within '
                    f'endpoint configuration "{config.arn}".'
                )
            endpoint.desired = endpoint.desired.changed(desired)
            self._move(endpoint, "Updating")
            self._in_background(self._resize, endpoint)

    def delete(self, name: str, arn: str) -> None:
        """Begin the end of an endpoint."""
        with self._lock:
            endpoint = self._settled(name, arn)
            self._move(endpoint, "Deleting")
            self._in_background(self._delete, endpoint)

    def describe(self, name: str, arn: str) -> Json:
        """What DescribeEndpoint answers."""
        with self._lock:
            return self._known(name, arn).description()

    def summaries(self) -> list[Json]:
        """What ListEndpoints shows, in no order."""
        with self._lock:
            return [endpoint.summary() for endpoint in self._endpoints.values()]

    def release_of(self, name: str, arn: str) -> Release:
        """What an endpoint that is ready for a change serves."""
        with self._lock:
            return self._settled(name, arn).release

    def capture_of(self, name: str) -> Json | None:
        """The data capture of the configuration that serves under a name."""
        with self._lock:
            endpoint = self._endpoints.get(name.lower())
            return endpoint.release.config.settings.get("DataCaptureConfig") if endpoint else None

    def arns(self) -> set[str]:
        """The ARNs of all endpoints."""
        with self._lock:
            return {endpoint.arn for endpoint in self._endpoints.values()}

    def under_way(self, config: str) -> list[str]:
        """The ARNs of the endpoints whose creation or update needs this configuration."""
        with self._lock:
            return [
                endpoint.arn
                for endpoint in self._endpoints.values()
                if endpoint.status in ("Creating", "Updating", "RollingBack")
                and endpoint.uses(config)
            ]

    @contextmanager
    def serving(self, name: str) -> Iterator[tuple[Fleet, str] | None]:
        """The fleet that takes the endpoint's traffic and the variant's name; None without one.

        The fleet is not drained before the context is left. Names are exact here, as on AWS.
        """
        found = None
        with self._lock:
            endpoint = self._endpoints.get(name.lower())
            if endpoint and endpoint.name == name and endpoint.fleet:
                found = (endpoint.fleet, endpoint.release.variant["VariantName"])
                endpoint.fleet.enter()
        try:
            yield found
        finally:
            if found:
                found[0].leave()

    def close(self) -> None:
        """End every process and every thread."""
        self._launcher.close()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _create(self, endpoint: Endpoint) -> None:
        try:
            fleet = self._launcher.launch(endpoint.name, endpoint.release)
        except LaunchError as error:
            with self._lock:
                self._move(endpoint, "Failed", str(error))
            return
        with self._lock:
            endpoint.fleet = fleet
            endpoint.current = endpoint.desired
            self._move(endpoint, "InService")

    def _update(self, endpoint: Endpoint, release: Release, desired: Capacity) -> None:
        try:
            fleet = self._launcher.launch(endpoint.name, release)
        except LaunchError as error:
            self._roll_back(endpoint, str(error))
            return
        with self._lock:
            old, endpoint.fleet = endpoint.fleet, fleet
            endpoint.bakes = True
        ringing = self._bake(endpoint)
        if ringing:
            with self._lock:
                endpoint.fleet, endpoint.bakes = old, False
            self._launcher.end(fleet, drain=True)
            reason = f"The deployment was rolled back: in ALARM: {', '.join(ringing)}."
            self._roll_back(endpoint, reason)
            return
        with self._lock:
            endpoint.release, endpoint.pending, endpoint.bakes = release, None, False
            endpoint.current = endpoint.desired = desired
        if old:
            self._launcher.end(old, drain=True)
        with self._lock:
            self._move(endpoint, "InService")

    def _roll_back(self, endpoint: Endpoint, reason: str) -> None:
        with self._lock:
            self._move(endpoint, "RollingBack", reason)
        self._settle()
        with self._lock:
            endpoint.pending = None
            self._move(endpoint, "InService", reason)

    def _bake(self, endpoint: Endpoint) -> list[str]:
        """Keep the old fleet for the termination wait; the alarms that ended it, if any did."""
        end = time.monotonic() + endpoint.bake_seconds / 60 * self._settle_seconds
        while endpoint.alarms and not self._launcher.closing.is_set():
            ringing = self._ringing(endpoint.alarms)
            if ringing or time.monotonic() >= end:
                return ringing
            self._launcher.closing.wait(_BETWEEN_LOOKS_SECONDS)
        return []

    def _resize(self, endpoint: Endpoint) -> None:
        self._settle()
        with self._lock:
            endpoint.current = endpoint.desired
            self._move(endpoint, "InService")

    def _delete(self, endpoint: Endpoint) -> None:
        with self._lock:
            fleet, endpoint.fleet = endpoint.fleet, None
        if fleet:
            self._launcher.end(fleet)
        self._settle()
        with self._lock:
            del self._endpoints[endpoint.name.lower()]

    def _settle(self) -> None:
        self._launcher.closing.wait(self._settle_seconds)

    def _in_background(self, work: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                work(*arguments)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=f"sagemaker{work.__name__}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _known(self, name: str, arn: str) -> Endpoint:
        if name.lower() not in self._endpoints:
            raise validation_error(f'Could not find endpoint "{arn}".')
        return self._endpoints[name.lower()]

    def _settled(self, name: str, arn: str) -> Endpoint:
        endpoint = self._known(name, arn)
        if endpoint.status in _IN_PROGRESS:
            raise validation_error(f'Cannot update in-progress endpoint "{arn}".')
        return endpoint

    @staticmethod
    def _move(endpoint: Endpoint, status: str, failure_reason: str | None = None) -> None:
        endpoint.status = status
        endpoint.failure_reason = failure_reason
        endpoint.modified = time.time()
        logger.info("endpoint %s: %s", endpoint.name, status)
