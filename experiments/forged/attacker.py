"""Someone who reports rewards that are not his to report, with values that mislead.

He knows the id of every decision, which actions are good, how tokens are made, and some that were
made for something else; not the secret that signs them. It stands here to make those, as the
service would have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import cycle

import numpy as np

from belated.core.events import Decision
from belated.service.access.tokens import RewardTokens, TokenSecrets
from experiments.serving import Caller

#: The name of the service's key and its secret, and what is guessed instead of it.
NAME, SECRET, GUESS = "k1", bytes(range(32)), bytes(32)
#: In microseconds since 1970: the token of a decision of that time has ended.
LONG_AGO = 1_000_000_000_000_000
#: What a reward was that was not refused.
TAKEN = "taken"
#: Kinds of what is sent with the token that came with the decision: all others are forged.
REPLAYS = ("its own: again", "its own: the contrary", "its own: the contrary, long before")


def signer(secret: bytes, bandit: str, at: int) -> Callable[[str], str]:
    """Makes the token of a decision that was made then, as a service with this secret does."""
    tokens = RewardTokens(
        TokenSecrets({NAME: secret}), bandit, mode="enforce", guarded=False, least=0.0, most=1.0
    )
    nothing = np.zeros(1, dtype=np.float32)
    return lambda id: tokens.of(Decision(id, at, 0, 0, nothing, 0.0, 1.0, 0, True))


class Attacker:
    """Attacks one bandit, with every kind of token in turn.

    Args:
        caller: to the service.
        bandit: that is attacked.
        now: in microseconds since 1970, so that tokens are good for a while.
    """

    def __init__(self, caller: Caller, bandit: str, now: int) -> None:
        genuine = signer(SECRET, bandit, now)
        self._caller = caller
        self._bandit = bandit
        kinds: dict[str, Callable[[str], str | None]] = {
            "signed with another secret": signer(GUESS, bandit, now),
            "cut short": lambda id: genuine(id)[:-1],
            "ended": signer(SECRET, bandit, LONG_AGO),
            "of another decision": lambda id: genuine(f"another than {id}"),
            "of another bandit": signer(SECRET, "another", now),
            "none": lambda id: None,
        }
        self._kinds = cycle(kinds.items())
        #: Rewards by kind and what was answered: taken, or why not.
        self.answers: Counter[tuple[str, str]] = Counter()

    @property
    def taken(self) -> int:
        """Rewards that were not refused."""
        return sum(count for (_, answer), count in self.answers.items() if answer == TAKEN)

    def forge(self, id: str, *, is_best: bool) -> None:
        """Say of a good choice that it was bad, and of a bad one that it was good."""
        kind, token_of = next(self._kinds)
        self._report(kind, id, 0.0 if is_best else 1.0, token_of(id))

    def replay(self, id: str, value: float, token: str | None) -> None:
        """Send a reward again that was told before, with its token; then the contrary of it."""
        same, contrary, earlier = REPLAYS
        self._report(same, id, value, token)
        self._report(contrary, id, 1.0 - value, token)
        self._report(earlier, id, 1.0 - value, token, at=LONG_AGO)

    def _report(
        self, kind: str, id: str, value: float, token: str | None, at: int | None = None
    ) -> None:
        path, body = f"/v1/{self._bandit}/decisions/{id}/reward", {"value": value, "token": token}
        status, response = self._caller.ask("PUT", path, {**body, "at": at})
        if status not in (202, 403, 422):
            raise RuntimeError(f"{path}: {status} {response}")
        # The detail of 422 has the times of this reward.
        refused = "it is dated before its decision" if status == 422 else response.get("detail", "")
        self.answers[kind, TAKEN if status == 202 else refused] += 1
