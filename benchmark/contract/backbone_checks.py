"""What every backbone must hold to, as checks that anyone can run on one of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import torch

from ...datasets.federation import NodeClient
from ..engine import Backbone, Batch, Forward, Params, Streams, affine, collate, stream
from .trial import node_federation
from .verdicts import ATOL, RTOL, Judgement, demand, judged, named, says_what_it_is

FEATURES, CLASSES = 20, 3  # of the trial's data


@cache
def members(*, sparse: bool = False) -> tuple[NodeClient, ...]:
    """Three clients of unequal size, dense or sparse features of the same values."""
    own = [client for client in node_federation().clients[:3] if isinstance(client, NodeClient)]
    rows = [torch.relu(client.feat.to_dense()) for client in own]
    feats = [row.to_sparse_csr() if sparse else row for row in rows]
    return tuple(replace(client, feat=feat) for client, feat in zip(own, feats, strict=True))


def _kinds(spec: Backbone) -> tuple[Backbone, ...]:
    """With its own last layer, and with a linear head behind, as methods that share heads ask for; of width 8."""
    small = spec.model_copy(update={"hidden": 8})
    return small, small.model_copy(update={"linear_head": True})


def _stack(spec: Backbone, clients: Sequence[int]) -> Params:
    own = [spec.init(stream(0, "backbone", client), FEATURES, CLASSES) for client in clients]
    return {name: torch.stack([one[name] for one in own]) for name in own[0]}


def _pass(spec: Backbone, batch: Batch, clients: Sequence[int], *, training: bool = False) -> Forward:
    streams = Streams(0, clients, {}) if training else None
    return spec.forward(_stack(spec, clients), batch, streams)


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=10 * RTOL, atol=10 * ATOL)


def documented(spec: Backbone) -> None:
    """The class has a docstring, and every parameter a description."""
    says_what_it_is(type(spec), "the paper and the formula of a layer")


def starts_the_same(spec: Backbone) -> None:
    """`init`: finite float32 parameters without a client axis, decided by the generator, as many in every draw."""
    for kind in _kinds(spec):
        torch.manual_seed(1)
        first, other = (kind.init(stream(0, "backbone", client), FEATURES, CLASSES) for client in (0, 1))
        torch.manual_seed(2)
        again = kind.init(stream(0, "backbone", 0), FEATURES, CLASSES)
        demand(first, "has no parameters")
        for name, value in first.items():
            sound = value.dtype == torch.float32 and torch.isfinite(value).all() and not value.requires_grad
            demand(sound, f"parameter {name!r} is no finite float32 without gradient")
            demand(torch.equal(value, again[name]), f"parameter {name!r} is not decided by the generator")
        shapes = [{name: tuple(value.shape) for name, value in one.items()} for one in (first, other)]
        demand(shapes[0] == shapes[1], "has other parameters in another draw")
        differ = any(not torch.equal(value, other[name]) for name, value in first.items())
        demand(differ, "starts from the same values whatever the generator: draw from it")


def yields_its_shapes(spec: Backbone) -> None:
    """Logits (N, C), hidden layers (N, h), finite; with `linear_head` the logits are those of head.weight, .bias."""
    batch = collate(members())
    rows = sum(batch.sizes)
    for kind in _kinds(spec):
        out, params = _pass(kind, batch, (0, 1, 2)), _stack(kind, (0, 1, 2))
        demand(tuple(out.logits.shape) == (rows, CLASSES), f"logits {tuple(out.logits.shape)}, not ({rows}, {CLASSES})")
        demand(torch.isfinite(out.logits).all(), "logits are not finite")
        wide = [tuple(z.shape) for z in out.pre if z.shape != (rows, kind.hidden)]
        demand(not wide, f"a hidden layer yields {wide[:1]}, not ({rows}, {kind.hidden})")
        if kind.linear_head:
            demand({"head.weight", "head.bias"} <= set(params), "linear_head asks for head.weight and head.bias")
            linear = _close(affine(params, "head", out.embedding, batch), out.logits)
            demand(linear, "with linear_head, its logits are not its embedding through the head")


def uses_every_parameter(spec: Backbone) -> None:
    """Each parameter changes the logits of its own client and of no other."""
    batch = collate(members())
    owner = batch.owner
    for kind in _kinds(spec):
        params = {name: value.requires_grad_(True) for name, value in _stack(kind, (0, 1, 2)).items()}
        logits = kind.forward(params, batch).logits
        for client in range(3):
            aim = logits[owner == client].square().sum()
            found = torch.autograd.grad(aim, list(params.values()), retain_graph=True, allow_unused=True)
            for name, grad in zip(params, found, strict=True):
                demand(grad is not None and grad[client].any(), f"parameter {name!r} has no part in the logits")
                assert grad is not None
                others = grad[[other for other in range(3) if other != client]]
                demand(not others.any(), f"parameter {name!r} of one client has a part in another's logits")


def ignores_the_cohort(spec: Backbone) -> None:
    """A client's numbers are the same alone and in a cohort, in training too."""
    own = members()
    for kind in _kinds(spec):
        for training in (False, True):
            together = _pass(kind, collate(own), (0, 1, 2), training=training).logits
            alone = [_pass(kind, collate([one]), (k,), training=training).logits for k, one in enumerate(own)]
            same = _close(together, torch.cat(alone))
            demand(same, f"{'training' if training else 'evaluation'} differs alone and in a cohort of 3")


def repeats_itself(spec: Backbone) -> None:
    """Evaluation draws nothing; training draws from the clients' streams alone. Parameters are not written to."""
    batch = collate(members())
    for training in (False, True):
        torch.manual_seed(1)
        first = _pass(spec, batch, (0, 1, 2), training=training).logits
        torch.manual_seed(2)
        second = _pass(spec, batch, (0, 1, 2), training=training).logits
        demand(torch.equal(first, second), "gives other numbers when run again: draw from `streams` alone")
    params = _stack(spec, (0, 1, 2))
    before = {name: value.clone() for name, value in params.items()}
    spec.forward(params, batch, Streams(0, (0, 1, 2), {}))
    written = [name for name, value in params.items() if not torch.equal(value, before[name])]
    demand(not written, f"a pass writes into parameters {written}")


def takes_sparse_features(spec: Backbone) -> None:
    """Sparse features give what the same dense ones give."""
    dense, thin = (_pass(spec, collate(members(sparse=sparse)), (0, 1, 2)).logits for sparse in (False, True))
    demand(_close(dense, thin), "gives other numbers for sparse features than for the same dense ones")


def sees_no_label(spec: Backbone) -> None:
    """Labels and masks have no part in its numbers."""
    batch = collate(members())
    before = _pass(spec, batch, (0, 1, 2)).logits
    batch.label.fill_(0)
    for mask in batch.masks.values():
        mask.fill_(True)
    demand(torch.equal(before, _pass(spec, batch, (0, 1, 2)).logits), "its numbers change with labels or masks")


CHECKS = named(
    documented, starts_the_same, yields_its_shapes, uses_every_parameter, ignores_the_cohort, repeats_itself,
    takes_sparse_features, sees_no_label,
)  # fmt: skip


def results(spec: Backbone) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one."""
    return judged(CHECKS, spec)
