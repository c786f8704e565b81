"""TinyProto: its masks, and two rounds against loops over clients and nodes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine.rng import stream
from fglbench.methods.tinyproto import masks

from .rounds import PLAIN, Make, close, descend, start

HEAD: dict[str, Any] = PLAIN | {"backbone": {"dropout": 0.0, "linear_head": True}}
RATE, LAM, SCALE = 0.05, 4.0, 0.2


@pytest.mark.parametrize("scaling", ["relative", "constant", "none"])
def test_rounds_equal_slow_loops(scaling: str, federation: Make) -> None:
    """Uploads, the server's table and the models of two rounds; a block of 8 // 3 entries per class."""
    world = federation((13, 7, 10))
    run = start(world, "tinyproto", {"lam": LAM, "scaling": scaling, "scale": SCALE}, **PLAIN, lr=RATE)
    alone = start(world, "local", clients_per_batch=1, **HEAD)
    block = masks(stream(5, "prototype masks"), 3, 3, 1).flatten().tolist()
    assert sorted(block) == [0, 1, 2]
    models = [{n: v[0] for n, v in clients.params.items()} for clients in alone.simulation.client_batches]
    nodes = sum(clients.batch.counts["train"][0] for clients in alone.simulation.client_batches)
    table, factor = dict[int, torch.Tensor](), {"relative": 3 / nodes, "constant": SCALE, "none": 1.0}
    for number in (1, 2):
        sent, fresh = run.round(number), dict[int, list[torch.Tensor]]()
        for k, clients in enumerate(alone.simulation.client_batches):
            label, rows = clients.batch.label.tolist(), clients.batch.rows["train"].tolist()

            def penalty(model: Any, clients: Any = clients, label: Any = label, rows: Any = rows) -> torch.Tensor:
                stacked = {n: v.unsqueeze(0) for n, v in model.items()}
                r, total = clients.forward(stacked, training=False).embedding, torch.zeros(())
                for i in rows:
                    if label[i] in table:
                        total = total + (r[i] - table[label[i]]).square().mean() / len(rows)
                return LAM * total

            models[k] = descend(clients, models[k], 2, RATE, penalty)
            r = clients.forward({n: v.unsqueeze(0) for n, v in models[k].items()}, training=False).embedding
            held = sorted({label[i] for i in rows})
            assert sent["classes"][k].tolist() == held
            for place, j in enumerate(held):
                of_class = [i for i in rows if label[i] == j]
                mean = sum(r[i] for i in of_class) / len(of_class)
                part = mean[2 * block[j] : 2 * block[j] + 2] * (1 if scaling == "none" else len(of_class))
                torch.testing.assert_close(sent["prototypes"][k][place], part, rtol=1e-5, atol=1e-5)
                fresh.setdefault(j, []).append(part)
        for j, parts in fresh.items():
            whole = torch.zeros(8)
            whole[2 * block[j] : 2 * block[j] + 2] = (
                sum(parts) * factor[scaling] / (len(parts) if scaling == "none" else 1)
            )
            table[j] = whole
    (scored,) = run.simulation.personal_models()
    for k, model in enumerate(models):
        close({n: scored[n] for n in model}, model, k)


def test_a_class_without_prototype_has_none_in_any_entry(federation: Make) -> None:
    run = start(federation((13, 7)), "tinyproto")
    clients = run.simulation.client_batches[0]
    assert run.method.table(clients) is None
    sent = torch.tensor([[1.0, 2.0], [torch.nan, torch.nan], [3.0, 4.0]])
    clients.received = {"prototypes": sent.expand(2, 3, 2)}
    table = run.method.table(clients)[1]
    assert table[1].isnan().all() and not table[[0, 2]].isnan().any()
    assert sorted(table[0].tolist()) == [0, 0, 0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize(("classes", "blocks", "count"), [(7, 7, 1), (10, 10, 3), (40, 40, 4), (6, 4, 2), (9, 3, 1)])
def test_masks_overlap_little(classes: int, blocks: int, count: int) -> None:
    chosen = [tuple(row) for row in masks(np.random.default_rng(0), classes, blocks, count).tolist()]
    assert all(len(set(row)) == count and min(row) >= 0 and max(row) < blocks for row in chosen)
    different = len(set(chosen))
    assert different == (classes if len(list(combinations(range(blocks), count))) >= classes else blocks)
    usage = np.bincount([block for row in chosen for block in row], minlength=blocks)
    assert usage.max() - usage.min() <= 1
