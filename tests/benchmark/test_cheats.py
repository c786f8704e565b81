"""The result of methods that cheat: no gain, a failed row, a mark, or a failed check."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fglbench.benchmark.contract.method_checks import CHECKS, ContractError, check
from fglbench.benchmark.contract.trial import node_federation, trials
from fglbench.benchmark.engine import Method, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.outcome import Outcome
from fglbench.benchmark.engine.target import Target
from fglbench.benchmark.engine.train import set_up, train
from fglbench.benchmark.store.schema import excess
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg
from fglbench.registry import UserError

_spec = importlib.util.spec_from_file_location("cheats", Path(__file__).with_name("cheats.py"))
assert _spec is not None and _spec.loader is not None
cheats = importlib.util.module_from_spec(_spec)
sys.modules["cheats"] = cheats  # pydantic looks up the annotations of the classes there
_spec.loader.exec_module(cheats)

CONFIG = TrainConfig(rounds=4, local_epochs=2, participation=0.5)


def run(method: Method, **options: object) -> Outcome:
    backbones = [BACKBONES.build("gcn", {"hidden": 8})]
    return train(node_federation(), method, backbones, CONFIG.model_copy(update=options), 0)


def over(outcome: Outcome) -> str:
    training = {"training": CONFIG.model_dump_json(), "effective_training": outcome.training.model_dump_json()}
    return excess({**vars(outcome), **training})


def cheats_with(result: str) -> list[type[Method]]:
    return [cheat for cheat, outcome in cheats.OUTCOMES.items() if outcome == result]


@pytest.fixture(autouse=True)
def forget() -> None:
    cheats.REMEMBERED.clear()


@pytest.mark.parametrize("cheat", cheats_with("nothing"))
@pytest.mark.parametrize("data", ["local", "global"])
def test_hidden_labels_give_a_cheat_no_gain(cheat: type[Method], data: str) -> None:
    honest, cheated = (run(method, score_on=data, participation=1.0) for method in (FedAvg(), cheat()))
    assert cheated.score <= honest.score
    if cheated.score_metric == honest.score_metric:  # not of a method that delivers personal models
        assert cheated.per_client["global_on_local"] == honest.per_client["global_on_local"]


@pytest.mark.parametrize("cheat", cheats_with("refused"))
def test_forbidden_actions_are_refused_with_a_reason(cheat: type[Method]) -> None:
    with pytest.raises(
        UserError, match=r"rearranges the clients' data|in `protocol`|predicts Agreeable, not"
    ) as caught:
        run(cheat())
    assert "\n" not in str(caught.value)
    assert check(cheat(), ["repeats_itself", "stays_local"])


@pytest.mark.parametrize("cheat", cheats_with("over"))
def test_training_beyond_the_budget_is_marked(cheat: type[Method]) -> None:
    assert over(run(cheat()))
    assert not over(run(FedAvg()))


@pytest.mark.parametrize("cheat", [cheat for cheat, outcome in cheats.OUTCOMES.items() if outcome in CHECKS])
def test_other_cheats_fail_a_check(cheat: type[Method]) -> None:
    try:
        with pytest.raises(ContractError):
            CHECKS[cheats.OUTCOMES[cheat]](cheat())
    finally:
        Target.accuracy = cheats.REMEMBERED.get("accuracy", Target.accuracy)
    CHECKS[cheats.OUTCOMES[cheat]](FedAvg())


@pytest.mark.parametrize(
    ("cheat", "name"),
    [
        (cheats.AnswersOwn, "sees_no_hidden_label"),
        (cheats.AnswersOwn, "knows_no_random_label"),
        (cheats.TrainsOnTest, "sees_no_hidden_label"),
    ],
)
def test_checks_detect_the_use_of_visible_labels(
    cheat: type[Method], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[set_up.__module__], "hide_labels", lambda federation: federation)
    with pytest.raises(ContractError, match=r"labels that no client may know|labels drawn at random are right"):
        CHECKS[name](cheat())


def test_a_pooling_method_fails_the_checks() -> None:
    assert set(check(cheats.Pooled(), CHECKS)) >= {"stays_local", "repeats_itself", "sees_no_hidden_label"}


def test_a_reference_is_one_that_the_package_registers() -> None:
    assert METHODS.is_own(METHODS.cls("global"))
    assert not METHODS.is_own(cheats.Pooled)
    assert run(METHODS.build("global")).score is not None
    assert trials()[0].federation.whole.label.min() >= 0  # the labels are unchanged
