"""Contextual bandits for delayed rewards."""

from typing import TYPE_CHECKING

from belated import delays, theory
from belated.bandit import Bandit
from belated.core.events import Decision
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit
from belated.decider import Holdout
from belated.features import (
    Category,
    Datetime,
    Flag,
    Hashed,
    Number,
    PerArm,
    RandomFeatures,
    Shared,
    Text,
    Vector,
)
from belated.fold.receipts import Receipt
from belated.journals import MemoryJournal, SQLiteJournal
from belated.model.families import Bernoulli, Gaussian, Poisson
from belated.policies import (
    BlindThompson,
    BlindUCB,
    DelayedThompson,
    DelayedUCB,
    EpsilonGreedy,
    Greedy,
    Uniform,
    WaitForWindow,
    paper_dts,
    paper_dts_lcb,
    paper_ducb,
)

if TYPE_CHECKING:
    from belated.journals import PostgresJournal, SpoolJournal
    from belated.simulation import environments, simulate
    from belated.simulation.sweeps import simulate_many

    __version__: str
else:
    #: Modules of names that are not needed for decisions; imported on first access.
    _LAZY = {
        "PostgresJournal": "belated.journals",
        "SpoolJournal": "belated.journals",
        "environments": "belated.simulation",
        "simulate": "belated.simulation",
        "simulate_many": "belated.simulation.sweeps",
    }

    def __getattr__(name):
        from importlib import import_module

        if name == "__version__":
            value = _version()
        elif name in _LAZY:
            value = getattr(import_module(_LAZY[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def _version():
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(__name__)
        except PackageNotFoundError:  # running from a source tree
            return "0"

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "Bandit",
    "Bernoulli",
    "BlindThompson",
    "BlindUCB",
    "Category",
    "ConversionsOnly",
    "Datetime",
    "Decision",
    "DefaultAfter",
    "DelayedThompson",
    "DelayedUCB",
    "EpsilonGreedy",
    "Explicit",
    "Flag",
    "Gaussian",
    "Greedy",
    "Hashed",
    "Holdout",
    "MemoryJournal",
    "Number",
    "PerArm",
    "Poisson",
    "PostgresJournal",
    "RandomFeatures",
    "Receipt",
    "SQLiteJournal",
    "Shared",
    "SpoolJournal",
    "Text",
    "Uniform",
    "Vector",
    "WaitForWindow",
    "delays",
    "environments",
    "paper_dts",
    "paper_dts_lcb",
    "paper_ducb",
    "simulate",
    "simulate_many",
    "theory",
]
