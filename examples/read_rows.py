# %% [markdown]
# # The rows in pandas
#
# Every run is a line of a CSV file, with its settings, metrics and provenance; docs/columns.md describes each column.
# This page reads the rows of a results folder, and then those of one suite and dataset. The environment variables
# `RESULTS`, `SUITE` and `DATASET` name them; by default `results` and its first suite and dataset.

# %%
import os

import matplotlib.pyplot as plt
import pandas as pd

import fglbench
from fglbench.benchmark.store import Store

RESULTS = os.environ.get("RESULTS", "results")
store = Store(RESULTS)  # one store, because it caches curves

# %% [markdown]
# With `expand=True` each setting is a column: `training.lr`, `method.mu`, `dataset.features`.

# %%
rows = fglbench.load_results(RESULTS, expand=True)
good = rows[(rows["status"] == "ok") & ~rows["reference"]].copy()
print(good.groupby(["suite", "dataset", "method"])["score"].agg(["mean", "std", "count"]).head(20))

# %% [markdown]
# Score and traffic up to the best round: means over the seeds of each method on one suite and dataset.

# %%
suite = os.environ.get("SUITE") or good["suite"].iloc[0]
dataset = os.environ.get("DATASET") or good.loc[good["suite"] == suite, "dataset"].iloc[0]
task_rows = good[(good["suite"] == suite) & (good["dataset"] == dataset)]
task_rows = task_rows.assign(megabytes=(task_rows["upload_bytes_best"] + task_rows["download_bytes_best"]) / 1e6)
means = task_rows.groupby("method")[["megabytes", "score"]].mean()
axes = means.plot.scatter("megabytes", "score", title=f"{dataset} ({suite})")
axes.set_xscale("symlog")
for method, place in means.iterrows():
    axes.annotate(method, tuple(place), fontsize=7)
axes.figure.savefig("traffic.png", dpi=120)
plt.close(axes.figure)

# %% [markdown]
# The curves of a run are stored next to its row.

# %%
if stored := store.history(suite, task_rows["key"].iloc[0]):
    print(pd.DataFrame(stored["history"]).tail())

# %% [markdown]
# If clients have models of different kinds (`gcn+gat`), client k has the kind k mod their number. The score of each
# kind is the mean over its clients and the seeds, with a line for each method and setting.


# %%
def by_kind(row: pd.Series) -> pd.Series:
    kinds = row["backbone"].split("+")
    stored = store.history(suite, row["key"]) or {"per_client": {"score": []}}
    scores = pd.Series(stored["per_client"]["score"], dtype=float)
    return scores.groupby(lambda k: f"{k % len(kinds)} {kinds[k % len(kinds)]}").mean()


options = task_rows.filter(regex=r"^(method|backbone)\.").map(str)
settings = [options[name] for name in options if options.groupby(task_rows["method"])[name].nunique().max() > 1]
scores = task_rows.apply(by_kind, axis=1)
print(scores.groupby([task_rows["method"], task_rows["clients"], *settings]).mean().round(3).to_string())
