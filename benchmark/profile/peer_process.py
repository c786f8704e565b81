"""Runs OpenFGL (arXiv:2408.16288) or FedGB, which is built on it, from a checkout: one round per line on stdin.

`peer.py` starts this script. It imports nothing of fglbench, so the checkout may have another Python, with torch,
PyTorch Geometric, SciPy and scikit-learn. The checkout is not changed; these parts are patched at run time:

- `torch.load` reads pickled objects: both store `Data` objects, which torch >= 2.6 refuses by default.
- `torch_scatter` is PyTorch Geometric's `scatter` (sum), and `torch_sparse` has empty classes: both packages need a
  compiler, and no other parts of them are used.
- `FGLDataset` is fglbench's federation with its splits, so that both train on the same clients.
- AdaFGL's sparse product is SciPy's: the original is a compiled file in its authors' home folder. No round uses it.
- The first phases of AdaFGL, FedSage+ and FedGB's FGGP last one round (`FIRST_PHASE`): the last phase is measured.
- FedGB's arguments are those of its dataset AML-HI with GCN-64, and it trains on the CPU.
- Its output is discarded.
"""

import functools
import importlib
import json
import operator
import os
import pickle
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

FIRST_PHASE = {"adafgl": "num_rounds_vanilla", "fedsage_plus": "gen_rounds", "fggp": "fggp_warmup_rounds"}
PARTS = ("train", "val", "test")


def patch() -> None:
    import torch
    from torch_geometric.utils import scatter

    torch.load = functools.partial(torch.load, weights_only=False)
    shims: dict[str, dict[str, Any]] = {
        "torch_scatter": {"scatter": scatter, "scatter_add": functools.partial(scatter, reduce="sum")},
        "torch_sparse": {name: type(name, (), {}) for name in ("SparseTensor", "fill_diag", "matmul", "mul", "sum")},
    }
    for name, members in shims.items():
        shim = ModuleType(name)
        vars(shim).update(members)
        sys.modules[name] = shim


def federation(folder: Path) -> Any:
    """A replacement of OpenFGL's `FGLDataset`, from the arrays that fglbench has written."""
    import numpy as np
    import torch
    from torch_geometric.data import Data

    def graph(file: Path) -> Any:
        arrays = {name: torch.from_numpy(array) for name, array in np.load(file).items()}
        data = Data(x=arrays["x"], edge_index=arrays["edges"], y=arrays["y"])
        data.num_global_classes = int(arrays["classes"])
        data.global_map = {local: int(node) for local, node in enumerate(arrays["nodes"])}
        return data, arrays

    splits = folder / "node_cls" / "default_split"
    splits.mkdir(parents=True)
    local = []
    for client in range(len(list(folder.glob("client_*.npz")))):
        data, arrays = graph(folder / f"client_{client}.npz")
        for part in PARTS:
            torch.save(arrays[part], splits / f"{part}_{client}.pt")
            with open(splits / f"glb_{part}_{client}.pkl", "wb") as file:
                pickle.dump(arrays["nodes"][arrays[part]].tolist(), file)
        local.append(data)
    return SimpleNamespace(local_data=local, global_data=graph(folder / "whole.npz")[0], processed_dir=str(folder))


def entry(checkout: str, method: str) -> tuple[ModuleType, Any, str]:
    """The module of the trainer, its arguments, and the package of the method."""
    if (Path(checkout) / "openfgl").is_dir():
        args = importlib.import_module("openfgl.config").args
        return importlib.import_module("openfgl.flcore.trainer"), args, f"openfgl.flcore.{method}"
    package = importlib.import_module("fedgb.config.method_specs").METHOD_SPECS[method]["package"]
    family = "standard_fl" if ".standard_fl." in package else "subgraph_fgl"
    config = importlib.import_module("fedgb.config.runtime").build_run_config
    args = config(family=family, scenario="homo_subgraph", algorithm=method, dataset="AML-HI", model="gcn")
    return importlib.import_module("fedgb.training.trainer"), args, package


def main(checkout: str, folder: str, method: str, epochs: str, threads: str) -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
    sys.argv, sys.path[0] = sys.argv[:1], checkout
    patch()
    import torch
    import torch_geometric

    trainers, args, package = entry(checkout, method)

    def answer(value: object) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()
        if not sys.stdin.readline():
            sys.exit()

    torch.set_num_threads(int(threads))
    if method == "adafgl":
        vars(importlib.import_module(f"{package}.op"))["csr_sparse_dense_matmul"] = operator.matmul
    if method in FIRST_PHASE:
        importlib.import_module(f"{package}.{method}_config").config[FIRST_PHASE[method]] = 1
    vars(trainers)["FGLDataset"] = lambda args: federation(Path(folder))
    args.root, args.dataset, args.model, args.metrics = folder, ["Cora"], ["gcn"], ["accuracy"]
    args.fl_algorithm, args.num_epochs, args.num_rounds = method, int(epochs), sys.maxsize
    args.num_clients = len(list(Path(folder).glob("client_*.npz")))
    importlib.import_module(f"{package.split('.')[0]}.utils.basic_utils").seed_everything(0)
    trainer = trainers.FGLTrainer(args)
    evaluate, start = trainer.evaluate, 0.0

    def evaluated() -> None:  # ends a round
        nonlocal start
        trained = time.process_time() - start
        evaluate()
        answer([trained, time.process_time() - start])
        start = time.process_time()

    trainer.evaluate = evaluated
    answer({"torch": torch.__version__, "torch_geometric": torch_geometric.__version__})
    start = time.process_time()
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
