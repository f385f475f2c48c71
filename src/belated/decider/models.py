"""Model selection: operators can go back to an earlier model, and return to the newest."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from belated.core.events import ModelChosen
from belated.core.results import Result
from belated.core.times import as_datetime
from belated.exceptions import InvalidInput
from belated.fold.published import PublishedModel, readable_model
from belated.journals.coordination import CoordinationStore

#: A model, identified by the number of records it has learned from, or the newest model.
Version = int | Literal["latest"]


class ModelState(msgspec.Struct, Result, frozen=True):
    """A model that an operator can choose.

    Attributes:
        version: number of records the model has learned from, which decisions store as ``model``.
        made_at: when the model was published.
        observations: number of rewards the model has learned from.
        state: ``chosen`` if an operator chose it, ``latest`` if it is the newest, otherwise
            ``kept``.
    """

    version: int
    made_at: datetime
    observations: int
    state: str = "kept"


def models_in(coordination: CoordinationStore, chosen: ModelChosen | None) -> list[ModelState]:
    """Return the models that an operator can choose, newest first.

    Args:
        coordination: the bandit's coordination store.
        chosen: the last event that chose a model, if any.
    """
    states = {
        model.version: ModelState(model.version, as_datetime(model.at), model.observations)
        for model in coordination.kept_models()
    }
    in_use = None if chosen is None else readable_model(chosen.model)
    for model, state in ((_latest(coordination), "latest"), (in_use, "chosen")):
        if model is not None:
            published = as_datetime(model.at)
            states[model.version] = ModelState(model.version, published, model.n, state)
    return sorted(states.values(), key=lambda model: -model.version)


def model_choice(
    coordination: CoordinationStore, version: Version, now: int, reason: str, actor: str
) -> ModelChosen:
    """Return the event that makes all deciders use the given model.

    Args:
        coordination: the bandit's coordination store.
        version: version of the model.
        now: the current time, in microseconds since 1970.
        reason: reason for the change.
        actor: the person or process that chooses the model.

    Raises:
        InvalidInput: the model is no longer stored, or is for different features.
    """
    if version == "latest":
        return ModelChosen(now, 0, b"", reason, actor)
    latest = _latest(coordination)
    if latest is not None and latest.version == version:
        return ModelChosen(now, version, latest.write(), reason, actor)
    data = coordination.kept_model(version)
    if data is None:
        versions = [str(model.version) for model in models_in(coordination, None)]
        message = f"there is no model version {version}"
        raise InvalidInput(
            f"{message}; known versions: {', '.join([*versions, 'latest'])}", version
        )
    if latest is not None and PublishedModel.read(data).features != latest.features:
        message = f"model version {version} was trained with different features"
        raise InvalidInput(
            f"{message}: choose a version published since the features changed", version
        )
    return ModelChosen(now, version, data, reason, actor)


def _latest(coordination: CoordinationStore) -> PublishedModel | None:
    published = coordination.published()
    return None if published is None else readable_model(published[1])
