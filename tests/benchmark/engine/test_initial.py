"""The initial parameters of every layer against the published initialisers: range, variance, distribution."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.benchmark.engine.graphs.classification import graph_models
from fglbench.benchmark.engine.rng import stream
from fglbench.benchmark.engine.target import Target
from fglbench.methods import METHODS
from fglbench.methods.fedlit import initial as fedlit_initial
from fglbench.methods.fedsage.neighgen import WIDTHS, NeighGen

D, H, C = 300, 96, 40  # wide: range and variance are exact to a percent
GLOROT = {  # (fan in, fan out) of each weight: uniform in +-sqrt(6 / (in + out)), biases zero (Glorot & Bengio 2010)
    "gcn": {"0.weight": (D, H), "1.weight": (H, H), "2.weight": (H, C)},
    "sgc": {"0.weight": (D, C)},
    "gat": {f"{i}.weight": fan for i, fan in enumerate([(D, H), (H, H), (H, C)])}
    | {f"{i}.{side}": fan for i, fan in enumerate([(H // 4, 4)] * 2 + [(C, 1)]) for side in ("left", "right")},
    "sage": {"0.weight": (D, H), "1.weight": (H, H), "2.weight": (H, C)},
    "gin": {f"{i}.inner.weight": fan for i, fan in enumerate([(D, H), (H, H), (H, H)])}
    | {f"{i}.outer.weight": fan for i, fan in enumerate([(H, H), (H, H), (H, C)])},
}


def initial_params(name: str, clients: int = 20, **options: object) -> Params:
    """The parameters of many clients, one draw per client: (clients, ...) each."""
    backbone = BACKBONES.build(name, {"hidden": H, "layers": 3, **options})
    draws = [backbone.init(stream(11, "test", k), D, C) for k in range(clients)]
    return {key: torch.stack([params[key] for params in draws]) for key in draws[0]}


def is_uniform(values: torch.Tensor, bound: float) -> None:
    """Within +-bound, with the variance bound^2 / 3, centred, and as many values in each quarter of the range."""
    n, flat = values.numel(), values.flatten().double()
    assert flat.abs().max() <= bound * (1 + 1e-6)
    assert flat.abs().max() > bound * (1 - 20 / n)
    assert abs(float(flat.mean())) < 5 * bound / sqrt(3 * n)
    assert float(flat.var()) == pytest.approx(bound**2 / 3, rel=5 * sqrt(0.8 / n))
    quarters = torch.histc(flat, 4, -bound, bound) / n
    assert torch.allclose(quarters, torch.full((4,), 0.25, dtype=torch.double), atol=5 * sqrt(0.1875 / n))
    assert len(torch.unique(values.flatten(1), dim=0)) == len(values)  # all clients differ


@pytest.mark.parametrize("name", GLOROT)
def test_weights_are_glorot_and_biases_zero(name: str) -> None:
    params = initial_params(name, heads=4) if name == "gat" else initial_params(name)
    for key, (n_in, n_out) in GLOROT[name].items():
        is_uniform(params.pop(key), sqrt(6 / (n_in + n_out)))
    assert params and all(key.endswith("bias") and not value.any() for key, value in params.items())


@pytest.mark.parametrize("name", [name for name in (*GLOROT, "ortho-gcn") if name != "sgc"])
def test_the_linear_head_is_glorot(name: str) -> None:
    params = initial_params(name, linear_head=True)
    is_uniform(params["head.weight"], sqrt(6 / (H + C)))
    assert params["head.weight"].shape[1:] == (H, C) and not params["head.bias"].any()


def test_an_mlp_starts_like_linear_layers_of_torch() -> None:
    params = initial_params("mlp")
    for i, (n_in, n_out) in enumerate([(D, H), (H, H), (H, C)]):
        assert params[f"{i}.weight"].shape[1:] == (n_in, n_out)
        is_uniform(params[f"{i}.weight"], 1 / sqrt(n_in))
        is_uniform(params[f"{i}.bias"], 1 / sqrt(n_in))
        torch.manual_seed(0)
        linear = torch.nn.Linear(n_in, n_out)
        ours = params[f"{i}.weight"].abs().max()
        assert float(ours) == pytest.approx(float(linear.weight.detach().abs().max()), rel=0.01)


def linear_fans(extra: int) -> dict[str, int]:
    """Fan in of the linear maps of a GIN that classifies graphs, with `extra` further inputs per layer (FedStar)."""
    layers = {f"{i}.inner": H + extra for i in range(3)} | {f"{i}.outer": H for i in range(3)}
    return layers | {"input": D, "post": H, "head": H}


@pytest.mark.parametrize("around", ["graphs", "fedstar"])
def test_graph_classifiers_start_like_torch_with_linear_start(around: str) -> None:
    gin = BACKBONES.build("gin", {"hidden": H, "layers": 3, "linear_start": "torch"})
    star = METHODS.build("fedstar")
    (model,) = graph_models([gin]) if around == "graphs" else star.architecture([gin])
    draws = [model.init(stream(11, "test", k), D, C) for k in range(20)]
    params = {key: torch.stack([draw[key] for draw in draws]) for key in draws[0]}
    fans = linear_fans(0) if around == "graphs" else linear_fans(H) | {"structure.input": 32, "mix": 2 * H}
    for key, fan in fans.items():
        is_uniform(params.pop(f"{key}.weight"), 1 / sqrt(fan))
        is_uniform(params.pop(f"{key}.bias"), 1 / sqrt(fan))
    for i in range(3 if around == "fedstar" else 0):  # GCN layers
        is_uniform(params.pop(f"structure.{i}.weight"), sqrt(6 / (2 * H)))
        assert not params.pop(f"structure.{i}.bias").any()
    assert not params


@pytest.mark.parametrize("name", [name for name in GLOROT if name != "gin"])
def test_layers_without_a_linear_map_start_the_same_either_way(name: str) -> None:
    torch.testing.assert_close(initial_params(name, linear_start="torch"), initial_params(name), rtol=0, atol=0)


def test_an_ortho_gcn_starts_orthogonal_then_uniform() -> None:
    params = initial_params("ortho-gcn")
    assert params.keys() == {"0.weight", "0.bias", "1.weight", "2.weight", "2.bias"}
    is_uniform(params["1.weight"], 1 / sqrt(H))
    is_uniform(params["2.weight"], sqrt(6 / (H + C)))
    first, drawn = (torch.linalg.svdvals(layers["0.weight"]) for layers in (params, initial_params("gcn")))
    assert 0.55 < first[:, :-1].min() < first.max() < 1.001  # near one, except the direction that centring removes
    assert first[:, -1].max() < 0.01 and drawn.max() > 1.5  # Glorot's are spread
    assert not params["0.bias"].any() and not params["2.bias"].any()


def test_eps_of_gin_has_its_option_as_initial_value() -> None:
    params = initial_params("gin", train_eps=True, eps=0.25)
    assert all((params[f"{i}.eps"] == 0.25).all() for i in range(3))
    assert not any(key.endswith("eps") for key in initial_params("gin", clients=1))


def test_layers_of_fedlit_start_like_torch_or_glorot() -> None:
    draws = [fedlit_initial(BACKBONES.build("gcn", {"hidden": H, "layers": 2}), seed, D, C, 3) for seed in range(8)]
    params = {key: torch.stack([draw[key] for draw in draws]) for key in draws[0]}
    for key, fan in {"first": D, "channel": H, "out": H}.items():
        is_uniform(params[f"{key}.weight"], 1 / sqrt(fan))
        is_uniform(params[f"{key}.bias"], 1 / sqrt(fan))
    for i in range(2):
        is_uniform(params[f"channel.{i}.weight"], sqrt(6 / (2 * H)))
        assert not params[f"channel.{i}.bias"].any()


def test_linear_maps_of_neighgen_start_like_torch() -> None:
    encoder = BACKBONES.build("sage", {"hidden": H})
    model = NeighGen(encoder=encoder, latent=H, slots=2, dropout=0.5)
    draws = [model.init(stream(3, "test", k), D) for k in range(4)]
    params = {key: torch.stack([draw[key] for draw in draws]) for key in draws[0]}
    fans = {"degree": H, "grow.0": H, "grow.1": WIDTHS[0], "slot.0": WIDTHS[1], "slot.1": WIDTHS[1]}
    for key, fan in fans.items():
        is_uniform(params[f"{key}.weight"], 1 / sqrt(fan))
        if key != "degree":
            is_uniform(params[f"{key}.bias"], 1 / sqrt(fan))
    assert (params["degree.bias"] == 1).all()


def test_the_selection_loss_is_the_mean_cross_entropy_per_client() -> None:
    """Of each client's validation rows only."""
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [3.0, -1.0], [0.0, 0.0]])
    label, val = torch.tensor([0, 0, 1, 1, 0]), torch.tensor([True, True, True, False, True])
    target = Target.of([label], [{"val": val, "test": ~val}], [3, 1, 1])
    losses = target.loss(logits, "val")
    assert losses[0] == pytest.approx(float(F.cross_entropy(logits[:3], label[:3])))
    assert losses[1].isnan() and losses[2] == pytest.approx(np.log(2))
    assert target.loss(logits, "test")[1] == pytest.approx(float(F.cross_entropy(logits[3:4], label[3:4])))
