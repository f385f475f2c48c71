"""What every process that decides can tell of its bandits."""

from __future__ import annotations

from typing import get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from belated.decider import MODES
from belated.service.operating.measures import Measure
from belated.service.serving.served_bandit import ServedBandit
from belated.service.serving.spools import Unreadable

#: Why what processes left cannot be read; ``folder``: not even the names of the files can.
UNREADABLE = (*get_args(Unreadable), "folder")
_COUNTER, _GAUGE, _HISTOGRAM = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_of_bandit = Measure[ServedBandit]


def _age(bandit: ServedBandit, since: int | None) -> float:
    return 0.0 if since is None else max(0.0, (bandit.now() - since) / 1e6)


#: What every process that decides can tell.
OF_BANDITS = (
    _of_bandit(
        _COUNTER, "belated_decisions", "Decisions made here.", lambda bandit: bandit.stats.decisions
    ),
    _of_bandit(
        _COUNTER, "belated_rewards", "Rewards accepted by this process.",
        lambda bandit: bandit.stats.rewards,
    ),
    _of_bandit(
        _COUNTER, "belated_activations_voids", "Activations and voids taken here.",
        lambda bandit: bandit.stats.activations_voids,
    ),
    _of_bandit(
        _COUNTER, "belated_unmatched_refused",
        "Events refused because too many wait for decisions that are unknown.",
        lambda bandit: bandit.stats.unmatched_refused,
    ),
    _of_bandit(
        _COUNTER, "belated_store_duplicates",
        "Events sent again by this process, which the store had and did not write.",
        lambda bandit: bandit.duplicates,
    ),
    _of_bandit(
        _COUNTER, "belated_choice_entropy_nats",
        "Sum of -log p of the choices; divided by the decisions, how much is explored.",
        lambda bandit: bandit.stats.entropy,
    ),
    _of_bandit(
        _HISTOGRAM, "belated_decide_seconds",
        "From the request to the answer, the commit included.", lambda bandit: bandit.stats.seconds,
    ),
    _of_bandit(
        _GAUGE, "belated_model_age_seconds", "Since the model that chooses here was made.",
        lambda bandit: bandit.age,
    ),
    _of_bandit(
        _GAUGE, "belated_model_version", "Records that this model has learned from.",
        lambda bandit: bandit.version,
    ),
    _of_bandit(
        _COUNTER, "belated_models_loaded", "Models loaded here.", lambda bandit: bandit.stats.models
    ),
    _of_bandit(
        _GAUGE, "belated_unapplied_decisions",
        "Decisions made here that the model has not read yet.",
        lambda bandit: len(bandit.decider.unapplied),
    ),
    _of_bandit(
        _GAUGE, "belated_mode", "1 for how the bandit decides here: learn, freeze, baseline, off.",
        lambda bandit: {mode: float(mode == bandit.decider.mode) for mode in MODES}, "mode",
    ),
    _of_bandit(
        _COUNTER, "belated_fallback_decisions",
        "Decisions by the baseline because the model could not choose, by the reason.",
        lambda bandit: {"error": 0, "not finite": 0} | bandit.decider.fallbacks, "reason",
    ),
    _of_bandit(
        _GAUGE, "belated_journal_unavailable",
        "1 while the database is away and events wait on the local disk, else 0.",
        lambda bandit: None if bandit.spool is None else float(bandit.spool.journal_down),
    ),
    _of_bandit(
        _GAUGE, "belated_spool_events", "Events that wait on the local disk.",
        lambda bandit: None if bandit.spool is None else bandit.spool.queued,
    ),
    _of_bandit(
        _GAUGE, "belated_spool_bytes", "Bytes they take.",
        lambda bandit: None if bandit.spool is None else bandit.spool.size,
    ),
    _of_bandit(
        _GAUGE, "belated_spool_oldest_seconds", "Since the oldest of them came; 0 if none waits.",
        lambda bandit: None if bandit.spool is None else _age(bandit, bandit.spool.oldest),
    ),
    _of_bandit(
        _GAUGE, "belated_spool_left_events",
        "Events left on the local disk by processes that died, and not delivered yet.",
        lambda bandit: None if bandit.left_spools is None else bandit.left_spools.events,
    ),
    _of_bandit(
        _GAUGE, "belated_spool_left_files", "Files with such events, or that cannot be read.",
        lambda bandit: None if bandit.left_spools is None else bandit.left_spools.files,
    ),
    _of_bandit(
        _GAUGE, "belated_spool_unreadable_files", "Those that cannot be read, by why.",
        lambda bandit: None if bandit.left_spools is None
        else dict.fromkeys(UNREADABLE, 0) | dict(bandit.left_spools.unreadable), "reason",
    ),
    _of_bandit(
        _COUNTER, "belated_internal_errors",
        "Failures behind the requests: of a commit, or of taking a model (board, model).",
        lambda bandit: {"commit": bandit.failed_commits, "board": 0, "model": 0}
        | bandit.stats.failures, "kind",
    ),
)  # fmt: skip
