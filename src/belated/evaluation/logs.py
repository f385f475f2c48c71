"""Import logs from other systems into a journal for evaluation.

Supported formats:

* DSJSON, the JSON Lines format of Vowpal Wabbit and Azure Personalizer, and of belated's exports.
* Open Bandit Pipeline's ``bandit_feedback`` arrays, saved with ``numpy.savez``.
* Data frames: see :mod:`belated.evaluation.frames`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, BinaryIO

import numpy as np

from belated.core.events import Configured, Decision, Event, Reward, Settled
from belated.core.ids import check_id
from belated.core.inputs import MAX_REWARD, Row, Vector, as_rows, must_be
from belated.core.rewards import Explicit, Rewards
from belated.core.times import as_microseconds
from belated.exceptions import InvalidInput
from belated.features import Features, Hashed, PerArm
from belated.fold.contexts import PackedContext, name_of, pack_context
from belated.fold.requests import keep_request
from belated.journals import Journal
from belated.journals.identity import identify, settings_of
from belated.model.families import Bernoulli, Family, Gaussian

#: Number of columns into which the features of a DSJSON line are hashed, unless it has rows.
HASHED = 64
#: Number of events written at a time.
PAGE = 5_000
_SECOND = 1_000_000


@dataclass(frozen=True, eq=False)
class LoggedDecision:
    """A decision of another system, with its outcome.

    Attributes:
        id: decision id; None means an id derived from the decision's number in the log.
        at: when the decision was made, in microseconds since 1970; None means one second after the
            previous decision.
        actions: names of the offered actions.
        index: index of the chosen action.
        propensities: probability of each action; NaN if unknown. The probability of the chosen
            action must be known.
        reward: the reward; None if it is pending.
        rows: rows of the actions, if the log has them; otherwise features encode ``context`` and
            ``records``.
        context: the context, known before choosing.
        records: records of the actions, if any.
        share: the probability with which the decision was sampled into the log.
        rewarded: when the reward arrived, in microseconds since 1970; None means immediately.
        mean: mean reward that was predicted when choosing.
    """

    id: str | None
    at: int | None
    actions: Sequence[int | str]
    index: int
    propensities: Sequence[float]
    reward: float | None
    rows: Row | None = None
    context: Any = None
    records: Sequence[Mapping[str, Any]] | None = None
    share: float = 1.0
    rewarded: int | None = None
    mean: float = 0.0


def import_log(
    journal: Journal,
    log: Iterable[LoggedDecision],
    features: Features | None,
    *,
    rewards: Rewards | None = None,
    family: Family | None = None,
    as_of: int | None = None,
) -> int:
    """Write the decisions of a log into a new journal, with their original timestamps.

    Args:
        journal: an empty journal.
        log: the decisions, in chronological order.
        features: the features that encode rows, unless the log has rows.
        rewards: what a missing reward means; None means that every reward is reported.
        family: family of the rewards; None means that their range determines it.
        as_of: settle decisions whose window ended by this time, in microseconds since 1970.

    Returns:
        The number of decisions written.
    """
    decisions = list(log)
    if not decisions:
        raise InvalidInput("the log has no decision with a known outcome: check its format")
    first = decisions[0].rows
    dim = features.dim if features is not None else 0 if first is None else first.shape[1]
    if family is None:
        family = family_of(np.array([decision.reward for decision in decisions], np.float64))
    identify(journal, family=repr(family), dim=dim, features=features)
    stamp = as_microseconds("2000-01-01T00:00:00Z", "at")
    stamped: list[tuple[int, Event, bytes | None]] = []
    for n, logged in enumerate(decisions):
        stamp = max(stamp, stamp + _SECOND if logged.at is None else logged.at)
        try:
            decision, request = _events_of(logged, n, stamp, features)
        except InvalidInput as error:
            raise InvalidInput(f"decision {n + 1} of the log: {error}", error.value) from None
        stamped.append((stamp, decision, request))
        if logged.reward is not None:
            arrived = stamp if logged.rewarded is None else logged.rewarded
            stamped.append((arrived, Reward(decision.id, arrived, logged.reward), None))
    rewards = rewards or Explicit()
    stamped.sort(key=itemgetter(0))
    stamped = _settled(stamped, rewards.window_us, as_of)
    policy = f"of another system, family={family!r}"
    settings = settings_of(policy, rewards, None, features)
    journal.append([Configured(stamped[0][0], settings)], recorded=[stamped[0][0]])
    for start in range(0, len(stamped), PAGE):
        stamps, events, requests = zip(*stamped[start : start + PAGE], strict=True)
        stored = {place: request for place, request in enumerate(requests) if request is not None}
        journal.append(events, recorded=stamps, requests=stored)
    return len(decisions)


def _settled(
    stamped: list[tuple[int, Event, bytes | None]], window: int | None, as_of: int | None
) -> list[tuple[int, Event, bytes | None]]:
    """Insert the events with which a bandit would settle decisions at the end of their window."""
    events: list[tuple[int, Event, bytes | None]] = []
    waiting: deque[tuple[int, str]] = deque()
    rewarded: set[str] = set()

    def settle(now: int) -> None:
        due = False
        while waiting and waiting[0][0] <= now:
            due |= waiting.popleft()[1] not in rewarded
        if due:
            events.append((now, Settled(0, now), None))

    for line in stamped:
        stamp, event, _ = line
        settle(stamp)
        events.append(line)
        if isinstance(event, Reward):
            rewarded.add(event.id)
        elif isinstance(event, Decision) and window is not None:
            waiting.append((stamp + window, event.id))
    if as_of is not None:
        events.append((as_of, Settled(0, as_of), None))
    return events


def family_of(rewards: Vector) -> Family:
    """Return Bernoulli if all rewards are from 0 to 1, otherwise Gaussian; NaN is ignored."""
    observed = rewards[~np.isnan(rewards)]
    inside = observed.min(initial=0.0) >= 0.0 and observed.max(initial=1.0) <= 1.0
    return Bernoulli() if inside else Gaussian()


def _events_of(
    logged: LoggedDecision, n: int, stamp: int, features: Features | None
) -> tuple[Decision, bytes | None]:
    id, index = f"line-{n + 1}" if logged.id is None else check_id(logged.id), logged.index
    actions: Any = logged.actions
    if logged.records is not None:
        actions = dict(zip(logged.actions, logged.records, strict=True))
    context = None
    if logged.rows is not None:
        rows = as_rows(logged.rows, logged.rows.shape[1])
    else:
        assert features is not None
        rows = features.rows(logged.context, actions)
        context = pack_context(logged.context, actions, features)
    request = keep_request(
        id, 1.0, len(rows), logged.actions, rows, context, logged.propensities, index
    )
    if request is not None and logged.share < 1.0:
        request = _with_share(request, logged.share)
    decision = Decision(
        id,
        stamp if logged.at is None else logged.at,
        logged.actions[index],
        index,
        rows[index],
        logged.mean,
        logged.propensities[index],
        0,
        context=_stored_context(context, index, features),
    )
    return decision, request


def _stored_context(context: PackedContext | None, index: int, features: Features | None) -> bytes:
    if context is None or features is None:
        return b""
    return name_of(features.fingerprint) + context.of_decision(index)


def _with_share(request: bytes, share: float) -> bytes:
    return request[:1] + np.array([share], "<f8").tobytes() + request[9:]


def _checked(decision: LoggedDecision, columns: Mapping[str, str]) -> LoggedDecision:
    """Return the decision if its index, propensities, reward, share and rows are valid.

    Args:
        decision: the decision as read.
        columns: names of the fields in the log, for errors.

    Raises:
        InvalidInput: a value is invalid; the error names its field.
    """
    index, reward = decision.index, decision.reward
    if not 0 <= index < len(decision.propensities):
        highest = len(decision.propensities) - 1
        raise must_be(columns["index"], f"from 0 to {highest}", index)
    for place, share in enumerate(decision.propensities):
        unknown = share != share and place != index
        if not (unknown or 0.0 <= share <= 1.0) or (place == index and share == 0.0):
            expected = "must be a probability, and above 0 for the chosen action"
            message = f"`{columns['propensities']}` of action {place} {expected}; got {share}"
            raise InvalidInput(message, share)
    if reward is not None and not abs(reward) <= MAX_REWARD:
        raise must_be(columns["reward"], f"from {-MAX_REWARD:g} to {MAX_REWARD:g}", reward)
    if not 0.0 < decision.share <= 1.0:
        dropped = 1.0 - decision.share
        raise must_be("pdrop", "at least 0 and less than 1", dropped)
    if decision.rows is not None:
        as_rows(decision.rows, decision.rows.shape[-1])
    return decision


_DSJSON = {"index": "_labelIndex", "propensities": "p", "reward": "_label_cost"}
_OBP = {"index": "action", "propensities": "pi_b", "reward": "reward"}


# --- DSJSON ---------------------------------------------------------------------------------------


def features_of_dsjson(log: Sequence[LoggedDecision]) -> Features | None:
    """Return the features that encode the decisions; None if the log has rows."""
    return None if all(decision.rows is not None for decision in log) else Hashed(HASHED)


def read_dsjson(file: BinaryIO, name: str = "the log") -> Iterator[LoggedDecision]:
    """Yield the decisions in a DSJSON file, skipping lines without a decision.

    Args:
        file: the open file.
        name: name of the file, for errors.

    Raises:
        InvalidInput: a line is malformed; the error gives its number.
    """
    for number, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if isinstance(line, dict) and "_label_cost" in line and "c" in line:
                yield _checked(_of_dsjson(line), _DSJSON)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            message = f"{name}, line {number}: {type(error).__name__}: {error}"
            raise InvalidInput(f"{message}; fix or remove the line", number) from None


def _of_dsjson(line: Mapping[str, Any]) -> LoggedDecision:
    multi = line["c"]["_multi"]
    ranked, shares = line["a"], line["p"]
    propensities = [0.0] * len(multi)
    for place, share in zip(ranked, shares, strict=True):
        propensities[place - 1] = float(share)
    chosen = int(line.get("_labelIndex", ranked[0] - 1))
    records = [
        _record({key: value for key, value in action.items() if key != "a"} | action.get("a", {}))
        for action in multi
    ]
    names: list[Any] = [record.pop("action", None) for record in records]
    if len({*names}) != len(names) or None in names:
        names = list(range(len(multi)))
    rows = None
    if all(set(action) == {"a"} and "x" in action["a"] for action in multi):
        rows = np.array([action["a"]["x"] for action in multi], dtype=np.float32)
    at = line.get("Timestamp")
    shared = {key: value for key, value in line["c"].items() if not key.startswith("_")}
    context = shared["shared"] if list(shared) == ["shared"] else _record(shared)
    return LoggedDecision(
        id=line.get("EventId"),
        at=None if at is None else as_microseconds(_time(at), "Timestamp"),
        actions=names,
        index=chosen,
        propensities=propensities,
        reward=-float(line["_label_cost"]),
        rows=rows,
        context=None if rows is not None else context,
        records=None if rows is not None else records,
        share=1.0 - float(line.get("pdrop", 0.0)),
    )


def _time(text: str) -> str:
    """Truncate a time to six fractional digits; Azure writes seven."""
    whole, dot, fraction = text.partition(".")
    digits = fraction.rstrip("Z")
    return f"{whole}.{digits[:6]}Z" if dot and fraction.endswith("Z") else text


def _record(given: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten namespaces and lists into one record of numbers and strings."""
    record: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith("_"):
            continue
        if isinstance(value, Mapping):
            record |= {f"{name}.{inner}": item for inner, item in _record(value).items()}
        elif isinstance(value, list):
            record |= _record({f"{name}.{n}": item for n, item in enumerate(value)})
        elif isinstance(value, bool):
            record[name] = float(value)
        elif value is not None:
            record[name] = value
    return record


# --- Open Bandit Pipeline -------------------------------------------------------------------------


def features_of_obp(log: Sequence[LoggedDecision]) -> Features:
    """Return features with separate coefficients for each action."""
    return PerArm(list(log[0].actions), context=len(log[0].context))


def read_obp(file: BinaryIO | Mapping[str, Any], name: str = "the log") -> Iterator[LoggedDecision]:
    """Yield the decisions in Open Bandit Pipeline's ``bandit_feedback``.

    Args:
        file: the ``bandit_feedback`` mapping, or a file written by
            ``numpy.savez("log.npz", **feedback)``.
        name: name of the file, for errors.

    Raises:
        InvalidInput: the file is not a ``bandit_feedback``, or a decision in it is invalid.
    """
    try:
        log = file if isinstance(file, Mapping) else np.load(file, allow_pickle=False)
        context, action = np.asarray(log["context"], float), np.asarray(log["action"], int)
        reward, pscore = np.asarray(log["reward"], float), np.asarray(log["pscore"], float)
        fields = {key: log[key] for key in ("pi_b", "n_actions", "position") if key in log}
    except (ValueError, KeyError, OSError) as error:
        message = f"{name} is not a bandit_feedback file of Open Bandit Pipeline ({error})"
        raise InvalidInput(f"{message}: save it with numpy.savez('log.npz', **feedback)") from None
    count = int(fields["n_actions"]) if "n_actions" in fields else int(action.max()) + 1
    shares = _shares_of_obp(fields, pscore, count, action)
    for n in range(len(action)):
        decision = LoggedDecision(
            id=None,
            at=None,
            actions=list(range(count)),
            index=int(action[n]),
            propensities=shares[n].tolist(),
            reward=float(reward[n]),
            context=context[n].tolist(),
        )
        try:
            yield _checked(decision, _OBP)
        except InvalidInput as error:
            raise InvalidInput(f"{name}, decision {n}: {error}", n) from None


def _shares_of_obp(known: Mapping[str, Any], pscore: Any, count: int, action: Any) -> Any:
    if known.get("pi_b") is not None:
        shares = np.asarray(known["pi_b"], float)
        if shares.ndim == 3:
            position = known.get("position")
            single = position is None or np.asarray(position).dtype == object
            places = np.zeros(len(shares), int) if single else np.asarray(position, int)
            shares = shares[np.arange(len(shares)), :, places]
        return shares
    if np.allclose(pscore, 1.0 / count):
        return np.full((len(pscore), count), 1.0 / count)
    # Only the propensity of the chosen action is known.
    shares = np.full((len(pscore), count), np.nan)
    shares[np.arange(len(pscore)), action] = pscore
    return shares


#: The reader of each format, and the function that returns features for its contexts.
READERS: dict[str, tuple[Any, Any]] = {
    "dsjson": (read_dsjson, features_of_dsjson),
    "obp": (read_obp, features_of_obp),
}
