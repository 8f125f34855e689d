"""The model of a step: work done one unit after the other, and one all-reduce over the links.

    seconds = units * unit + step + 2 * (nodes - 1) / nodes * gradient bytes / bytes a second

A ring all-reduce sends every node's link the whole gradient twice, less the share that is its own.
The links count between nodes; what workers of one node do among themselves is in `step`. There is
no term for latency, which 2 * (nodes - 1) rounds add, and none for nodes that wait for the slowest.
"""

from dataclasses import dataclass

GRADIENT_BYTES = 4  # of a parameter: gradients are summed in float32


def ring_bytes(nodes: int, *, payload: float) -> float:
    """Bytes that each node sends, and receives, to sum `payload` bytes over all nodes."""
    return 2 * (nodes - 1) / nodes * payload


@dataclass(frozen=True, kw_only=True)
class StepModel:
    """Seconds of a unit (a micro-batch, a sequence), seconds of a step besides, and the links'.

    `payload` is the gradient in bytes, `bytes_per_second` is that of the links of one node.
    """

    unit_seconds: float
    step_seconds: float
    payload: float
    bytes_per_second: float

    def seconds(self, *, nodes: int, units: float) -> float:
        """Of one step, in which each worker does so many units."""
        link = ring_bytes(nodes, payload=self.payload) / self.bytes_per_second
        return units * self.unit_seconds + self.step_seconds + link
