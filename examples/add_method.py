# %% [markdown]
# # A method of your own
#
# The method is one class in a separate file, because runs start new processes, which import it. This one is FedAvg with
# a server that moves only part of the way to the clients' average. `fglbench new method NAME` writes a longer template.

# %%
import os
from pathlib import Path

import fglbench

DATASET, ROUNDS = os.environ.get("DATASET", "cora"), os.environ.get("ROUNDS", "30")
METHOD = '''
"""FedAvg with a damped server."""

from pydantic import Field

from fglbench.benchmark.engine import METHODS
from fglbench.methods.fedavg import FedAvg


@METHODS.register("damped")
class Damped(FedAvg):
    """FedAvg whose server keeps a share of its model: theta <- keep theta + (1 - keep) mean. Messages as FedAvg."""

    keep: float = Field(0.5, ge=0, lt=1, description="share of the old model")

    def aggregate(self, server, models):
        mean, old = super().aggregate(server, models), server.state["model"]
        return {name: self.keep * old[name] + (1 - self.keep) * mean[name] for name in mean}
'''

# %%
if __name__ == "__main__":
    Path("damped.py").write_text(METHOD)
    print(fglbench.show("damped", plugins=["damped.py"]))

# %% [markdown]
# Before runs, `fglbench check damped --plugin damped.py` tests that the method is deterministic, that its results do
# not depend on the grouping of clients, and that it uses no hidden labels.

# %%
if __name__ == "__main__":
    rows = fglbench.run(
        quick=True,
        methods=["fedavg", "damped"],
        datasets=[DATASET],
        settings=[f"training.rounds={ROUNDS}"],
        seeds=range(2),
        results="runs/damped",
        plugins=["damped.py"],
    )
    print(rows.groupby("method")[["score", "best_round", "upload_bytes"]].mean())
