"""Settings and identity of a bandit, stored in its journal so that tools can read the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from belated.core.events import Configured
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards, retention_us
from belated.core.times import format_duration, parse_duration
from belated.exceptions import InvalidInput, JournalMismatch
from belated.features import Features, Hashed, PerArm, Shared
from belated.journals.journal import Journal
from belated.journals.log import UniqueLog

_REDUCE = ("latest", "sum", "max")


def settings_of(
    policy: object,
    rewards: Rewards,
    retention: int | None,
    features: Features | None,
    holdout: int | str | None = None,
) -> dict[str, str]:
    """Return the settings of a bandit as readable text, by name; absent settings are omitted.

    Args:
        policy: Policy of the bandit.
        rewards: Meaning of missing rewards.
        retention: How long decisions accept rewards, in microseconds. None means no limit.
        features: Features of the bandit; None if callers pass rows.
        holdout: Baseline of the holdout; None if there is no holdout.

    >>> settings_of("Greedy()", DefaultAfter("90m"), None, None)
    {'policy': 'Greedy()', 'rewards': 'DefaultAfter', 'reduce': 'latest', 'window': '1h30m', \
'default': '0.0'}
    """
    window, bounds = rewards.window_us, rewards.bounds
    attribution = rewards.attribution_us or 0
    names = None if features is None else features.names
    actions = getattr(features, "actions", None)
    settings = {
        "policy": str(policy),
        "rewards": type(rewards).__name__,
        "reduce": rewards.reduce,
        "window": None if window is None else format_duration(window),
        "default": repr(rewards.default) if isinstance(rewards, DefaultAfter) else None,
        "learn": "together" if getattr(rewards, "learn", None) == "together" else None,
        "delivery": rewards.delivery if isinstance(rewards, ConversionsOnly) else None,
        "bounds": None if bounds is None else f"{bounds[0]!r}, {bounds[1]!r}",
        "attribution": None if rewards.attribution is None else format_duration(attribution),
        "retention": None if retention is None else format_duration(retention),
        "features": None if features is None else _written(features),
        "names": None if names is None else ", ".join(names),
        "actions": None if actions is None else ", ".join(map(str, actions)),
        "holdout": None if holdout is None else str(holdout),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _written(features: Features) -> str:
    """Return features as written in a configuration file; for custom features, the class name."""
    is_builtin = isinstance(features, PerArm | Shared | Hashed)
    return repr(features) if is_builtin else type(features).__name__


def semantics_of(settings: Mapping[str, str]) -> tuple[Rewards, int | None]:
    """Return the meaning of missing rewards and the retention in microseconds, from settings.

    >>> settings = settings_of("Greedy()", Explicit("7d"), None, None)
    >>> semantics_of(settings)[0] == Explicit("7d")
    True
    >>> settings = settings_of("Greedy()", Explicit("7d", attribution="1d"), None, None)
    >>> semantics_of(settings)[0]
    Explicit(window=datetime.timedelta(days=7), reduce='latest', bounds=None, \
attribution=datetime.timedelta(days=1))

    Raises:
        InvalidInput: the settings cannot be read; a newer release may have written them.
    """
    try:
        window = settings.get("window")
        retention = settings.get("retention")
        bounds = settings.get("bounds")
        reduce = next(name for name in _REDUCE if name == settings["reduce"])
        limits = None if bounds is None else tuple(map(float, bounds.split(", ")))
        span = None if window is None else parse_duration(window)
        rewards: Rewards
        if settings["rewards"] == "DefaultAfter":
            value = float(settings["default"])
            learn = settings.get("learn", "on arrival")
            rewards = DefaultAfter(span, value=value, learn=learn, reduce=reduce, bounds=limits)  # type: ignore[arg-type]
        elif settings["rewards"] == "ConversionsOnly":
            delivery = settings.get("delivery", "auto")
            rewards = ConversionsOnly(span, delivery=delivery, reduce=reduce, bounds=limits)  # type: ignore[arg-type]
        elif settings["rewards"] == "Explicit":
            rewards = Explicit(span, reduce=reduce, bounds=limits)  # type: ignore[arg-type]
        else:
            raise ValueError(settings["rewards"])
        if "attribution" in settings:
            rewards = replace(rewards, attribution=settings["attribution"])
        limit = None if retention is None else parse_duration(retention)
    except (KeyError, ValueError, TypeError, StopIteration) as error:
        message = f"the journal's settings {dict(settings)!r} cannot be read ({error!r})"
        raise InvalidInput(f"{message}: upgrade belated, or pass the options", settings) from None
    return rewards, retention_us(limit, rewards)


def configure(journal: UniqueLog, settings: Mapping[str, str], at: int) -> bool:
    """Record the settings of a bandit in its journal; return False if they are unchanged.

    Args:
        journal: Journal of the bandit.
        settings: Settings from :func:`settings_of`.
        at: Time in microseconds since 1970.
    """
    last = journal.configured()
    if last is not None and last.settings == settings:
        return False
    journal.append([Configured(at, dict(settings))])
    return True


def identify(
    journal: Journal,
    *,
    family: str,
    dim: int,
    features: Features | None = None,
    contexts: bool = True,
) -> None:
    """Store the identity of a bandit in its journal, or check it against the stored identity.

    If the features have changed, the new identity is stored; decisions with other features are
    encoded again from their contexts.

    Args:
        journal: Journal of the bandit.
        family: Reward family, as its ``repr``.
        dim: Number of coefficients.
        features: Features of the bandit; None if callers pass rows.
        contexts: Whether contexts are stored.

    Raises:
        JournalMismatch: the journal has a different family, rows with a different width, or
            different features without stored contexts.
    """
    identity = identity_of(family=family, dim=dim, features=features, contexts=contexts)
    stored = journal.identify(identity)
    if stored != identity:
        check_change(stored, identity, features)
        journal.reidentify(identity)


def identity_of(
    *, family: str, dim: int, features: Features | None, contexts: bool
) -> dict[str, str]:
    """Return the identity of a bandit; see :func:`identify` for the arguments."""
    identity = {
        "family": family,
        "dim": str(dim),
        "features": "" if features is None else features.fingerprint,
    }
    if (blocks := getattr(features, "blocks", None)) is not None:
        identity["blocks"] = str(blocks)
    if features is not None and not contexts:
        identity["contexts"] = "no"
    return identity


def check_change(
    stored: Mapping[str, str], identity: Mapping[str, str], features: Features | None
) -> None:
    """Raise JournalMismatch if a journal's decisions cannot be encoded with the bandit's features.

    Args:
        stored: Identity of the journal.
        identity: Identity of the bandit that opens the journal.
        features: Features of that bandit.
    """
    if stored["family"] != identity["family"]:
        message = f"the journal was created with {stored['family']}, not {identity['family']}"
        raise JournalMismatch(f"{message}: use the original family, or choose another journal")
    if features is None or not stored["features"]:
        difference = f"rows of {stored['dim']} numbers, not {identity['dim']}"
        if stored["features"] != identity["features"]:
            difference = "caller-supplied rows, not with features"
            if stored["features"]:
                difference = "features, not with caller-supplied rows"
        message = f"the journal was created with {difference}: use the original settings"
        raise JournalMismatch(f"{message}, or choose another journal")
    if "contexts" in stored and not features.extends(stored["features"]):
        message = (
            "the features are not those of the journal, whose decisions are stored with "
            "contexts=False: without contexts, rows cannot be encoded again"
        )
        raise JournalMismatch(
            f"{message}. Open it with its original features, or choose another journal and omit "
            "contexts=False"
        )
