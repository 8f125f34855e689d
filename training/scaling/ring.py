"""The model of a step: work that grows with the micro-batches, and one all-reduce over the links.

    seconds = accumulate * micro + step + 2 * (nodes - 1) / nodes * gradient bytes / bytes a second

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
    """Seconds of a micro-batch and of a step, bytes of the gradient, bytes a second of links.

    In place of micro-batches anything else can be counted that a worker does one after the other.
    """

    micro_seconds: float
    step_seconds: float
    payload: float
    bytes_per_second: float

    def seconds(self, *, nodes: int, accumulate: float) -> float:
        """Of one step."""
        link = ring_bytes(nodes, payload=self.payload) / self.bytes_per_second
        return accumulate * self.micro_seconds + self.step_seconds + link
