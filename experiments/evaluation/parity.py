"""Make the fixture that our off-policy values are compared with: those of two other libraries.

It runs in an environment of its own, for these libraries want other versions of everything::

    python -m venv parity && parity/bin/pip install vw-estimators numpy scipy scikit-learn pandas
    parity/bin/pip install --no-deps obp
    parity/bin/python experiments/evaluation/parity.py

``obp`` imports PyTorch for estimators that are not compared; a stand-in is enough here.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import numpy as np

FIXTURE = Path(__file__).parents[2] / "tests" / "unit" / "off_policy_parity.json"
DECISIONS, ACTIONS = 150, 4


class StandIn(types.ModuleType):
    """A module of which nothing is used."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stand_in() -> None:
    names = ["torch", "mypy_extensions", "tqdm", "yaml", "matplotlib", "seaborn"]
    torch = ["torch.nn", "torch.optim", "torch.utils", "torch.utils.data", "torch.nn.functional"]
    for name in [module for module in names if importlib.util.find_spec(module) is None]:
        sys.modules[name] = StandIn(name)
        if name == "torch":
            sys.modules |= {module: StandIn(module) for module in torch}
    spec = importlib.util.find_spec("obp")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0])
    for name, place in (("obp", root), ("obp.ope", root / "ope")):  # without all they import
        module = types.ModuleType(name)
        module.__path__ = [str(place)]
        sys.modules[name] = module


def main() -> None:
    rng = np.random.default_rng(20_230)
    logged = rng.dirichlet(np.ones(ACTIONS), DECISIONS) * 0.8 + 0.2 / ACTIONS
    target = rng.dirichlet(np.ones(ACTIONS), DECISIONS)
    model = rng.random((DECISIONS, ACTIONS))
    action = np.array([rng.choice(ACTIONS, p=p / p.sum()) for p in logged])
    reward = (rng.random(DECISIONS) < 0.4).astype(float)
    propensity = logged[np.arange(DECISIONS), action]

    from estimators.bandits import ips, snips

    values = {}
    for name, estimator in (("vw ips", ips.Estimator()), ("vw snips", snips.Estimator())):
        for t in range(DECISIONS):
            estimator.add_example(propensity[t], reward[t], target[t, action[t]])
        values[name] = estimator.get()
    stand_in()
    from obp.ope import estimators as obp

    inputs = {
        "reward": reward,
        "action": action,
        "pscore": propensity,
        "action_dist": target[:, :, None],
        "position": np.zeros(DECISIONS, dtype=int),
    }
    fitted = {"estimated_rewards_by_reg_model": model[:, :, None]}
    values["obp ips"] = obp.InverseProbabilityWeighting().estimate_policy_value(**inputs)
    values["obp snips"] = obp.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(
        **inputs
    )
    values["obp dr"] = obp.DoublyRobust().estimate_policy_value(**inputs, **fitted)
    values["obp sndr"] = obp.SelfNormalizedDoublyRobust().estimate_policy_value(**inputs, **fitted)
    fixture = {
        "made_with": {name: version(name) for name in ("vw-estimators", "obp")},
        "logged": logged.tolist(),
        "target": target.tolist(),
        "model": model.tolist(),
        "action": action.tolist(),
        "reward": reward.tolist(),
        "values": {name: float(value) for name, value in values.items()},
    }
    FIXTURE.write_text(json.dumps(fixture) + "\n")
    print(json.dumps(fixture["values"], indent=1))


if __name__ == "__main__":
    main()
