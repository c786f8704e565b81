"""What the report makes in a results folder, by name. All else there is a row's, a machine's or the maintainers'.

LEADERBOARD.md, REPRODUCTION.md, <suite>/REPRODUCTION.md, <suite>/tables/<task>.md, .csv and robustness.csv,
<suite>/figures/<figure>.png and manifest.json; leaderboard.html on request, not for version control
"""

from __future__ import annotations

FIGURES = (
    "cka",
    "convergence",
    "cost",
    "label_distribution",
    "per_client",
    "privacy",
    "rank_heatmap",
    "robustness",
    "sensitivity",
    "tiers",
    "tsne",
)
FORMER = ("critical_difference", "score_vs_bytes", "score_vs_seconds", "win_rate")  # until the report removes them
