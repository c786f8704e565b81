"""The label distribution of a partition as bubbles: clients across, classes up, area = nodes (FedOMD, 2024, Fig. 4)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ..registry import UserError
from .describe import Description


def draw(description: Description, title: str, path: Path) -> None:
    """Write the picture to `path` (its suffix is the format). Raises UserError where that cannot be written."""
    labels = description.labels
    clients, classes = labels.shape
    width, height = np.clip([1.6 + 0.45 * clients, 1.2 + 0.38 * classes], [4.5, 2.6], [16, 12])
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    axes = figure.subplots()
    client, label = np.nonzero(labels)
    # the largest bubble just fills its cell: the smaller of the distances between clients and between classes
    cell = 72 * 0.8 * min(width / (clients + 1), height / (classes + 1))
    area = (0.92 * cell) ** 2 * labels[client, label] / max(labels.max(), 1)
    axes.scatter(client, label, s=area, c=label % 20, cmap="tab20", vmin=-0.5, vmax=19.5, alpha=0.85, linewidths=0)
    axes.set(title=title, xlabel="client", ylabel="class", xlim=(-0.7, clients - 0.3), ylim=(-0.7, classes - 0.3))
    axes.set_xticks(np.arange(clients)[:: max(1, clients // 20)])
    axes.set_yticks(np.arange(classes)[:: max(1, classes // 20)])
    axes.grid(visible=True, linewidth=0.4, alpha=0.4)
    axes.set_axisbelow(True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UserError(f"the plot cannot be written to {path}: {str(error).splitlines()[0]}") from None
