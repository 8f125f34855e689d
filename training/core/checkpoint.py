"""Checkpoints of a run, written while it goes on, and the way back to the newest one.

No random state is kept: every micro-batch seeds its own numbers from the seed, the step and its
place in the step, so position and weights are the whole state.
"""

import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

import torch

from training.command import InputError
from training.core.backend import Backend
from training.core.store import Facts, Store


class Checkpoints:
    """Keeps the newest `keep` states of a model and its optimizer.

    Only the first worker writes. `stalls` are the seconds that training waited, one a checkpoint;
    `damaged` are the steps that a resume passed over.
    """

    def __init__(
        self, store: Store, *, keep: int, model: Any, optimizer: torch.optim.Optimizer
    ) -> None:
        self._store = store
        self._keep = keep
        self._model = model
        self._optimizer = optimizer
        self._host: dict[str, torch.Tensor] = {}
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.stalls: list[float] = []
        self.damaged: list[int] = []
        self._left: set[int] = set()  # damaged ones that are still in the store

    def save(self, step: int, facts: Mapping[str, Any]) -> None:
        """Copy the state to host memory and go on; a thread writes it.

        Raises:
            OSError, InputError: the checkpoint before this one could not be written.
        """
        start = time.perf_counter()
        self.wait()
        for name, tensor in self._state().items():
            if name not in self._host:
                self._host[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
            self._host[name].copy_(tensor)
        arguments = (step, dict(facts) | {"step": step})
        self._thread = threading.Thread(target=self._write, args=arguments, name="checkpoint")
        self._thread.start()
        self.stalls.append(time.perf_counter() - start)

    def wait(self) -> None:
        """Wait until what was saved is written.

        Raises:
            OSError, InputError: it could not be; the one before is still there.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def resume(
        self, backend: Backend, identity: Mapping[str, Any], *, needs: Collection[str] = ()
    ) -> Facts | None:
        """Load the newest whole checkpoint on every worker; its facts, or None without one.

        Args:
            backend: whose first worker chooses for all.
            identity: what must be as it was when the checkpoint was written.
            needs: numbers that the facts must have, or the checkpoint counts as damaged.

        Raises:
            InputError: it is of another run, or a worker cannot read what the first one chose.
        """
        found = None
        chosen = -1
        if backend.first:
            for step in self._store.steps():
                if (found := self._read(step, needs)) is not None:
                    chosen = step
                    break
                self.damaged.append(step)
            self._left = set(self.damaged)
        # Two numbers, since a sum of float32 is exact under 2 ** 24 only.
        high, low = backend.sum(divmod(chosen + 1, 1 << 20) if backend.first else (0.0, 0.0))
        chosen = int(high) * (1 << 20) + int(low) - 1
        if chosen < 0:
            return None
        found = found or self._read(chosen, needs)
        if found is None:
            raise InputError(
                f"rank {backend.workers.rank} cannot read the checkpoint of step {chosen} that "
                "rank 0 chose; give --checkpoints a place that all workers share"
            )
        tensors, facts = found
        if different := [
            f"{name} was {facts['identity'].get(name)!r} and is {value!r}"
            for name, value in identity.items()
            if facts["identity"].get(name) != value
        ]:
            raise InputError(
                f"the checkpoints are of another run: {'; '.join(different)}; go on with the same "
                "settings, or give another --output"
            )
        self._restore(tensors)
        return facts

    def _read(
        self, step: int, needs: Collection[str]
    ) -> tuple[dict[str, torch.Tensor], Facts] | None:
        """The state of a step, or None where it is damaged or lacks what a run goes on from."""
        found = self._store.read(step)
        if found is None or not isinstance(found[1].get("identity"), dict):
            return None
        return found if all(isinstance(found[1].get(name), int | float) for name in needs) else None

    def _write(self, step: int, facts: Facts) -> None:
        try:
            self._store.write(step, self._host, facts)
            for old in self._surplus(step):
                self._store.remove(old)
            self._left.clear()
        except BaseException as error:
            self._error = error

    def _surplus(self, step: int) -> list[int]:
        """What can go once a step is written: damaged ones, later ones, and the oldest."""
        steps = self._store.steps()
        older = [one for one in steps if one < step and one not in self._left]
        kept = {step, *older[: self._keep - 1]}
        return [one for one in steps if one not in kept]

    def _named(self) -> dict[str, torch.Tensor]:
        """Weights and buffers; a tied weight once."""
        return {
            **{f"model.{name}": tensor for name, tensor in self._model.named_parameters()},
            **{f"model.{name}": tensor for name, tensor in self._model.named_buffers()},
        }

    def _state(self) -> dict[str, torch.Tensor]:
        state = {name: tensor.detach() for name, tensor in self._named().items()}
        for index, values in self._optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{index}.{name}": value for name, value in values.items()}
        return state

    def _restore(self, tensors: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in self._named().items():
                tensor.copy_(tensors[name])
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "optimizer":
                index, _, key = rest.partition(".")
                state.setdefault(int(index), {})[key] = tensor
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})
