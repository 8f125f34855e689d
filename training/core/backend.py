"""Where a run computes and how its workers agree: the only file that knows xla, cuda and cpu.

Trn1 goes by torch-xla under torch-neuronx (`xla`). Trn2 and Trn3 are left to TorchNeuron, which
ships under the same package name from 2.13 on and is stock torch with device and process group
`neuron`: there, `Backend` serves as it is, with that name in place of `cuda`.
"""

import contextlib
import os
import platform
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Literal

import torch
import torch.distributed as dist

from training.command import InputError, first_line

Device = Literal["auto", "cpu", "cuda", "xla"]
Precision = Literal["auto", "bf16", "fp32"]

MINIMUM_TORCH = (2, 6)
# What the processor must have before bf16 is faster than fp32. torch's own switch
# (mkldnn._is_mkldnn_bf16_supported) also says yes where bf16 is only emulated with AVX-512.
CPU_BF16 = ("amx_bf16", "avx512_bf16", "sve_bf16", "bf16")
# Dense TFLOP/s of data sheets, without sparsity. A NeuronCore-v2 has 95 in bf16, a quarter in fp32.
PEAK_BF16 = {"H200": 989.4, "H100": 989.4, "A100": 312.0, "L40S": 362.0, "L4": 121.0, "A10G": 70.0}
NEURON_CORE = {"bf16": 95.0, "fp32": 23.75}


@dataclass(frozen=True, kw_only=True)
class Workers:
    """This process among the workers of the run, as torchrun tells it."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    per_node: int = 1

    @classmethod
    def from_environment(cls) -> "Workers":
        """Read RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; one worker without them."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        defaults = (0, 1, 0, 1)
        try:
            rank, world, local_rank, per_node = (
                int(os.environ.get(name, default))
                for name, default in zip(names, defaults, strict=True)
            )
        except ValueError as error:
            raise InputError(f"{', '.join(names)} must be whole numbers: {error}") from error
        return cls(rank=rank, world=world, local_rank=local_rank, per_node=per_node)

    @property
    def nodes(self) -> int:
        """Machines that take part."""
        return -(-self.world // self.per_node)


class Backend:
    """Stock torch: a processor with gloo, or a GPU with NCCL.

    Weights, gradients and the optimizer are float32 in either precision.

    Attributes:
        device: where the model is.
        precision: of the forward pass, and `reason`, what decided it.
        lag: how many steps behind the figures of a step are read, so that the device never waits.
        fixed_shapes: whether every new shape costs a compilation.
    """

    lag = 0
    fixed_shapes = False

    def __init__(self, *, workers: Workers, device: torch.device, precision: Precision) -> None:
        self.workers = workers
        self.device = device
        self.precision, self.reason = _precision(precision, *self._bf16())
        self.lag = 0 if device.type == "cpu" else 1

    @property
    def first(self) -> bool:
        """Whether this worker writes files and progress for all."""
        return self.workers.rank == 0

    @property
    def fused_optimizer(self) -> bool:
        """Whether AdamW can run as one kernel."""
        return True

    def connect(self) -> None:
        """Join the other workers."""
        if self.workers.world > 1:
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")

    def place(self, model: Any) -> Any:
        """Move a model to the device, in place."""
        return model.to(self.device)

    def move(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies on the device of tensors on the host."""
        if self.device.type == "cuda":
            tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
        return {name: value.to(self.device, non_blocking=True) for name, value in tensors.items()}

    def autocast(self) -> torch.autocast:
        """A context in which matrix products run in the chosen precision."""
        enabled = self.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def seed(self, value: int) -> None:
        """Seed the random numbers of this worker, those of the device included."""
        torch.manual_seed(value)

    def reduce(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each float32 tensor by its sum over the workers, in one collective.

        Raises:
            InputError: another worker is gone.
        """
        if self.workers.world > 1:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            try:
                dist.all_reduce(flat)
            except RuntimeError as error:
                raise InputError(
                    f"rank {self.workers.rank} lost the other workers: {first_line(error)}"
                ) from error
            _scatter(flat, tensors)

    def sync(self) -> None:
        """Hand what was asked for so far to the device; eager devices have it already."""

    def read_later(self, tensor: torch.Tensor) -> Callable[[], list[float]]:
        """Start to copy a vector to the host; the result waits for it and gives the values."""
        if self.device.type != "cuda":
            return tensor.tolist  # type: ignore[no-any-return]
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()

        def read() -> list[float]:
            copied.synchronize()
            return host.tolist()  # type: ignore[no-any-return]

        return read

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums of some numbers over the workers; exact for whole ones under 2 ** 24."""
        tensor = torch.tensor(list(values), dtype=torch.float32, device=self.device)
        self.reduce([tensor])
        self.sync()
        return tensor.tolist()  # type: ignore[no-any-return]

    def barrier(self) -> None:
        """Wait until every worker is here."""
        self.sum([0.0])

    def check(self) -> None:
        """Prove at the start that the workers are those asked for and can talk to each other.

        torch-xla on a processor, for one, says world size 1 in each of several workers and lets
        every one train on its own.

        Raises:
            InputError: torch is too old, or a sum of ones is not the number of workers, or they
                have different versions.
        """
        have = tuple(int(part) for part in torch.__version__.split(".")[:2])
        if have < MINIMUM_TORCH:
            least = ".".join(map(str, MINIMUM_TORCH))
            raise InputError(f"torch is {torch.__version__}, and {least} or newer is needed")
        digest = zlib.crc32(repr(sorted(self.versions().items())).encode()) % 4093
        world = self.workers.world
        ones, versions = self.sum([1.0, float(digest)])
        if ones != world:
            raise InputError(
                f"a sum of ones over {world} workers gave {ones:g}: they do not reach each other; "
                "see that each has the same WORLD_SIZE, MASTER_ADDR and device"
            )
        if versions != digest * world:
            mine = ", ".join(f"{name} {number}" for name, number in self.versions().items())
            raise InputError(
                f"the workers have different versions; rank {self.workers.rank}: {mine}"
            )

    def versions(self) -> dict[str, str]:
        """What decides the numbers: python, torch and what lies between torch and the device."""
        found = {"python": platform.python_version(), "torch": torch.__version__}
        if self.device.type == "cuda":
            found["cuda"] = str(torch.version.cuda)
        return found

    def name(self) -> str:
        """The hardware, in its maker's words."""
        if self.device.type == "cuda":
            return str(torch.cuda.get_device_name(self.device))
        return str(_cpu_capabilities().get("cpu_name") or platform.machine())

    def peak_flops(self) -> tuple[float | None, str]:
        """FLOP/s of one device in the run's precision by its data sheet, and where that is said."""
        if self.device.type == "cuda" and self.precision == "bf16":
            name = self.name()
            for key, tera in PEAK_BF16.items():
                if key in name.replace("-", " ").split():
                    return tera * 1e12, f"data sheet of {key}, dense bf16"
        return None, "measured with a matrix product"

    def leave(self, code: int) -> int:
        """End a worker among several, after all of them; alone, give back the exit code.

        destroy_process_group and a plain exit abort now and then: gloo's thread frees a tensor
        while the interpreter is finalising. So the workers meet, flush, and stop hard.
        """
        if self.workers.world > 1:
            with contextlib.suppress(InputError):  # a worker that is gone already
                self.barrier()
            stop_hard(code)
        return code

    def _bf16(self) -> tuple[bool, str]:
        """Whether the device computes in bf16, and in words what says so."""
        if self.device.type == "cuda":
            able = torch.cuda.is_bf16_supported(including_emulation=False)
            return able, f"{self.name()} has {'' if able else 'no '}bf16 arithmetic"
        capabilities = _cpu_capabilities()
        if not capabilities:
            return False, f"torch {torch.__version__} does not tell whether this processor has bf16"
        found = [name for name in CPU_BF16 if capabilities.get(name)]
        if found:
            return True, f"this processor has {', '.join(found)}"
        return False, "this processor has no bf16 instructions"


class XlaBackend(Backend):
    """torch-xla: NeuronCores, or its own processor device where PJRT_DEVICE=CPU asks for that."""

    fixed_shapes = True

    def __init__(self, *, workers: Workers, precision: Precision) -> None:
        wanted = os.environ.get("PJRT_DEVICE", "NEURON")  # read before torch-xla sets a default
        if wanted == "NEURON":
            _check_neuron()
        try:
            import torch_xla
            import torch_xla.core.xla_model as xm
            import torch_xla.runtime as xr
        except ImportError as error:
            raise InputError(
                f"device xla: cannot import torch_xla: {error}; install the set of "
                "training/requirements-neuron-*.txt that fits the instances"
            ) from error
        self._xla, self._model, self._runtime = torch_xla, xm, xr
        if (got := xr.device_type()) != wanted:
            raise InputError(
                f"device xla: PJRT runs on {got}, expected {wanted}; it falls back without a word "
                "where the Neuron packages are PyPI's placeholders or no device is free"
            )
        try:
            device = torch_xla.device()
        except RuntimeError as error:
            raise InputError(
                f"device xla: PJRT gives no device for PJRT_DEVICE={wanted}: {first_line(error)}"
            ) from error
        super().__init__(workers=workers, device=device, precision=precision)

    @property
    def fused_optimizer(self) -> bool:
        """No: torch's fused AdamW raises on xla, and the compiler fuses the plain one."""
        return False

    def connect(self) -> None:
        """Join the other workers and see that the runtime knows of all."""
        if self.workers.world > 1:
            import torch_xla.distributed.xla_backend  # noqa: F401 - makes the backend known

            dist.init_process_group("xla", init_method="xla://")
        if (got := self._runtime.world_size()) != self.workers.world:
            raise InputError(
                f"device xla: the runtime has {got} workers and torchrun started "
                f"{self.workers.world}; with PJRT_DEVICE=CPU only one can work"
            )

    def place(self, model: Any) -> Any:
        """Move a model, and tie again the weights that the move has untied."""
        model.to(self.device)
        if hasattr(model, "tie_weights"):
            model.tie_weights()
        return model

    def seed(self, value: int) -> None:
        """Seed host and device; both take part in dropout."""
        torch.manual_seed(value)
        self._model.set_rng_state(value, str(self.device))

    def reduce(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each float32 tensor by its sum over the workers, in one collective."""
        if self.workers.world > 1:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            _scatter(self._model.all_reduce("sum", flat), tensors)

    def sync(self) -> None:
        """Compile and start the graph that was recorded since the last time."""
        self._xla.sync()

    def versions(self) -> dict[str, str]:
        """torch-xla and the Neuron packages too."""
        found = super().versions()
        for name in ("torch-xla", "torch-neuronx", "neuronx-cc", "libneuronxla"):
            with contextlib.suppress(PackageNotFoundError):
                found[name] = version(name)
        return found

    def name(self) -> str:
        """NeuronCore, or what PJRT calls its device."""
        kind = str(self._runtime.device_type())
        return "NeuronCore-v2" if kind == "NEURON" else f"PJRT {kind}"

    def peak_flops(self) -> tuple[float | None, str]:
        """FLOP/s of one NeuronCore of Trn1."""
        if self._runtime.device_type() == "NEURON":
            return NEURON_CORE[self.precision] * 1e12, "data sheet of Trn1, a core"
        return None, "no data sheet for this device"

    def _bf16(self) -> tuple[bool, str]:
        return True, "xla compiles bf16 for this device"


def open_backend(device: Device, precision: Precision) -> Backend:
    """Take the device, join the other workers and check both.

    `auto` is xla where torch-neuronx is installed, else the GPU where there is one, else the
    processor.

    Raises:
        InputError: the device is not there, or the workers do not work together.
    """
    workers = Workers.from_environment()
    if device == "auto":
        if find_spec("torch_neuronx") is not None:
            device = "xla"
        else:
            device = "cuda" if torch.cuda.is_available() else "cpu"
    backend: Backend
    if device == "xla":
        backend = XlaBackend(workers=workers, precision=precision)
    elif device == "cuda":
        if workers.local_rank >= torch.cuda.device_count():
            raise InputError(
                f"device cuda: worker {workers.local_rank} of this node has no GPU, torch sees "
                f"{torch.cuda.device_count()}; start fewer workers, or use device cpu"
            )
        place = torch.device("cuda", workers.local_rank)
        torch.cuda.set_device(place)
        backend = Backend(workers=workers, device=place, precision=precision)
    else:
        backend = Backend(workers=workers, device=torch.device("cpu"), precision=precision)
    backend.connect()
    backend.check()
    return backend


def stop_hard(code: int) -> None:
    """End this process at once, after its output is out."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _precision(asked: Precision, able: bool, finding: str) -> tuple[Literal["bf16", "fp32"], str]:
    """The precision to use, and why."""
    if asked == "fp32":
        return "fp32", "asked for"
    if asked == "bf16":
        return "bf16", "asked for" if able else f"asked for, though {finding}: expect it to be slow"
    return ("bf16" if able else "fp32"), finding


def _cpu_capabilities() -> dict[str, Any]:
    """What the processor can do; empty where torch is too old to tell."""
    return dict(getattr(torch.cpu, "get_capabilities", dict)())


def _scatter(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copy a flat vector back into the tensors that it was made from."""
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()


def _check_neuron() -> None:
    """Refuse every torch-neuronx but the line that Trn1 has, which goes by torch-xla.

    Raises:
        InputError: it is missing, PyPI's placeholder, TorchNeuron, or made for another torch.
    """
    advice = "install training/requirements-neuron-*.txt with its exact versions"
    try:
        found = version("torch-neuronx")
    except PackageNotFoundError:
        raise InputError(f"device xla: torch-neuronx is not installed; {advice}") from None
    major, minor = (int(part) for part in found.split(".")[:2])
    if major < 2:
        raise InputError(f"device xla: torch-neuronx {found} is PyPI's placeholder; {advice}")
    if (major, minor) >= (2, 13):
        raise InputError(
            f"device xla: torch-neuronx {found} is TorchNeuron, which has no Trn1; {advice}"
        )
    if not torch.__version__.startswith(f"{major}.{minor}."):
        raise InputError(
            f"device xla: torch-neuronx {found} needs torch {major}.{minor}, this is "
            f"{torch.__version__}; {advice}"
        )
