"""The confusion matrix as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def draw(path: Path, counts: Sequence[Sequence[int]], labels: Sequence[str]) -> bool:
    """Write a PNG: a row a true label, a column a given one; False where matplotlib is missing.

    A cell is as dark as its share of the row, so that rare labels are as readable as common ones.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure: Any = Figure(figsize=(5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(picture, label="share of the true label")
    places = range(len(labels))
    axes.set_xticks(places, labels)
    axes.set_yticks(places, labels)
    axes.set_xlabel("given")
    axes.set_ylabel("true")
    for row in places:
        for column in places:
            color = "white" if shares[row][column] > 0.5 else "black"
            text = f"{counts[row][column]}\n{shares[row][column]:.0%}"
            axes.text(column, row, text, ha="center", va="center", color=color)
    figure.savefig(path, dpi=120)
    return True
