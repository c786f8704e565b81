"""The trials of regression: what is altered in them, and a method that knows the numbers to be predicted."""

from __future__ import annotations

import pytest
import torch

from fglbench.benchmark.contract import method_checks, verdicts
from fglbench.benchmark.contract.method_checks import CHECKS, ContractError, Inapplicable, check
from fglbench.benchmark.contract.trial import Trial, drawn, perturbed, relabelled, trials
from fglbench.datasets.federation import Federation, GraphClient
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

NUMBERS = [trial for trial in trials() if trial.federation.task.endswith("regression")]


def held(client) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of a client's rows (n, 1), and which rows train."""
    if isinstance(client, GraphClient):
        return client.label, client.masks["train"]
    return client.graph.ndata["label"], client.graph.ndata["train_mask"].bool()


@pytest.mark.parametrize("trial", NUMBERS, ids=lambda trial: trial.name)
@pytest.mark.parametrize("change", [relabelled, drawn])
def test_every_number_but_those_that_train_changes(trial: Trial, change) -> None:
    changed = change(trial.federation)
    for before, after in zip(trial.federation.clients, changed.clients, strict=True):
        (old, trained), (new, still) = held(before), held(after)
        assert torch.equal(trained, still) and torch.equal(old[trained], new[trained])
        known = ~trained & ~old.isnan().squeeze(1)
        assert known.any() and (old[known] != new[known]).all()
        if change is drawn:
            assert set(new[~trained].flatten().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("trial", NUMBERS, ids=lambda trial: trial.name)
def test_one_client_gets_other_numbers(trial: Trial) -> None:
    changed = perturbed(trial.federation, 1)
    for k, (before, after) in enumerate(zip(trial.federation.clients, changed.clients, strict=True)):
        same = torch.equal(held(before)[0].nan_to_num(), held(after)[0].nan_to_num())
        assert same == (k != 1)


KNOWN: list[Federation] = []


class FromMemory(FedAvg):
    """Answers with the numbers of a federation that it knows."""

    def predict_own(self, params, cohort):
        return torch.cat([held(client)[0] for client in KNOWN[-1].clients])


def test_who_knows_the_numbers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_checks, "drawn", lambda given: KNOWN.append(drawn(given)) or KNOWN[-1])
    for trial in NUMBERS:
        monkeypatch.setattr(verdicts, "trials", lambda one=trial: [one])
        with pytest.raises(ContractError, match="in random numbers"):
            CHECKS["knows_no_random_label"](FromMemory())
        CHECKS["knows_no_random_label"](FedAvg())


def test_each_method_is_for_numbers_or_says_that_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "trials", lambda: NUMBERS)
    for method in map(METHODS.build, METHODS.names()):
        reasons = [verdicts.refusal(method, trial) for trial in NUMBERS]
        if "rows" in method.tasks:
            assert reasons == [None] * len(NUMBERS)
            continue
        assert all(reason and "not for" in reason for reason in reasons)
        with pytest.raises(Inapplicable):
            verdicts.fitting(method)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto"])  # of others `test_contract.py` draws
def test_the_contract_holds_on_both(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "trials", lambda: NUMBERS)
    assert not check(METHODS.build(name))
