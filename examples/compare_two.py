# %% [markdown]
# # Two methods with your settings
#
# FedAvg and FedProx on one dataset, with five local epochs instead of the suite's three. All methods of a seed have the
# same clients, split and initial weights, so the scores are paired.

# %%
import os

import matplotlib.pyplot as plt

import fglbench

DATASET, ROUNDS = os.environ.get("DATASET", "cora"), os.environ.get("ROUNDS", "30")

# %% [markdown]
# The cells are those of the suite `quick` with changed settings, so the suite of the rows is `custom`.

# %%
if __name__ == "__main__":
    rows = fglbench.run(
        quick=True,
        methods=["fedavg", "fedprox"],
        datasets=[DATASET],
        settings=["training.local_epochs=5", f"training.rounds={ROUNDS}"],
        seeds=range(3),
        results="runs/compare",
    )
    print(rows[["method", "seed", "score", "best_round", "total_seconds"]])

# %% [markdown]
# `compare` pairs the seeds of each task. With one dataset there is no test over datasets, but there is an interval.

# %%
if __name__ == "__main__":
    (duel,) = fglbench.compare("fedprox", "fedavg", suite="custom", results="runs/compare")
    print(duel.tasks)
    print(duel.verdict)

# %%
if __name__ == "__main__":
    scores = 100 * rows.pivot_table(index="seed", columns="method", values="score")
    axes = scores.T.plot(marker="o", legend=False, ylabel="accuracy, %", title=f"{DATASET}, a line for each seed")
    axes.set_xticks(range(len(scores.columns)), scores.columns)
    axes.figure.savefig("compare.png", dpi=120)
    plt.close(axes.figure)
