"""Reward tokens: the token of a decision allows reporting its reward without a key.

A token is the name of the key that signed it, a dot, and 72 letters: its expiry, the range of the
reward, and the HMAC-SHA256 of both with the bandit and the decision. Nothing is stored: to check a
token, it is computed again.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from belated.core.events import Decision
from belated.core.inputs import Interval
from belated.core.rewards import Rewards
from belated.exceptions import Forbidden, InvalidInput, RateLimited, Unauthenticated
from belated.journals.steady_clock import system_clock
from belated.wire.messages import RewardBody

#: What is done with tokens: none are made; they are counted; they are required.
TokenMode = Literal["off", "report", "enforce"]
#: Lifetime of a token if rewards have neither window nor retention, in microseconds.
LIFETIME = 30 * 86_400_000_000
#: Rewards that a token alone may report within so many seconds, per process; and the number of
#: tokens that are counted: if there are more, all counts restart at 0.
MAX_REPORTS, REPORT_SECONDS, MAX_REMEMBERED = 10, 60.0, 100_000
#: What a token can turn out to be.
VERDICTS = ("valid", "missing", "forged", "expired", "range", "part")

_FORM = 1  # so that another one can come later
_PAYLOAD = struct.Struct(">BIBdd")  # form, end in seconds (high 32 bits and low 8), range
_KEY = re.compile(r"([A-Za-z0-9_-]{1,16}):([A-Za-z0-9+/=_-]+)")
_LEAST_BYTES = 32


def check_bounded(rewards: Rewards, support: Interval) -> None:
    """Refuse tokens for rewards without bounds: one report of an extreme value would decide."""
    if rewards.bounds is None and not math.isfinite(support.upper - support.lower):
        message = "anyone with a token could report any value, as rewards have no bounds"
        remedy = f"{type(rewards).__name__}(…, bounds=(0, 100))"
        raise InvalidInput(f'{message}: add bounds, as in rewards = "{remedy}"')


class TokenSecrets:
    """The secrets that sign and verify: the first signs, all verify.

    Args:
        secrets: by their ids.

    >>> TokenSecrets.read("b:" + "B" * 43 + "=,a:" + "A" * 43 + "=")
    TokenSecrets('b', 'a')
    """

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self.secrets = dict(secrets)

    @classmethod
    def read(cls, text: str) -> TokenSecrets:
        """Keys as they are written in the environment: ``id:base64``, with commas between."""
        secrets: dict[str, bytes] = {}
        for number, part in enumerate(text.split(","), start=1):
            form = _KEY.fullmatch(part.strip())
            if form is None or form[1] in secrets:
                message = f"token key {number} is not written id:base64, with an id of its own"
                raise InvalidInput(message)
            try:
                secret = base64.b64decode(form[2].replace("-", "+").replace("_", "/"))
            except binascii.Error:
                raise InvalidInput(f"the secret of token key {form[1]!r} is no base64") from None
            if len(secret) < _LEAST_BYTES:
                message = f"the secret of token key {form[1]!r} has {len(secret)} bytes: make one "
                raise InvalidInput(f"{message}of {_LEAST_BYTES} with `openssl rand -base64 32`")
            secrets[form[1]] = secret
        return cls(secrets)

    def __repr__(self) -> str:
        return f"TokenSecrets({', '.join(map(repr, self.secrets))})"


@dataclass(eq=False)
class RewardTokens:
    """Makes and checks the tokens of one bandit.

    Args:
        keys: that sign and verify.
        bandit: its name.
        mode: what is done about rewards without a good token.
        guarded: whether the service needs keys; then a key replaces a token.
        lifetime: of a token, in microseconds since the decision.
        least: the least reward that can be reported.
        most: the greatest.
        clock: gives microseconds since 1970.
    """

    keys: TokenSecrets
    bandit: str
    _: KW_ONLY
    mode: TokenMode
    guarded: bool
    lifetime: int = LIFETIME
    least: float
    most: float
    clock: Callable[[], int] = system_clock

    def __post_init__(self) -> None:
        secrets = self.keys.secrets
        # Started with the secret once: a copy is quicker than a new one for every token.
        self._macs = {name: hmac.new(secrets[name], digestmod="sha256") for name in secrets}
        self._signer = next(iter(secrets), "")
        name = self.bandit.encode()
        self._name = struct.pack(">H", len(name)) + name
        self._reports: dict[str, int] = {}
        self._reports_until = -math.inf
        #: How many rewards came, by what their token was.
        self.seen = dict.fromkeys(VERDICTS, 0)

    def of(self, decision: Decision) -> str:
        """Return the token of a decision; it is always the same."""
        ends = -(-(decision.at_us + self.lifetime) // 1_000_000)
        payload = _PAYLOAD.pack(_FORM, ends >> 8 & 0xFFFFFFFF, ends & 0xFF, self.least, self.most)
        return self._sign(self._signer, payload, decision.id).decode()

    def check(self, id: str, reward: RewardBody, keyed: bool) -> None:
        """Refuse a reward without a valid key or token.

        Args:
            id: of the decision.
            reward: as it was sent.
            keyed: whether it came with a key for rewards.

        Raises:
            Unauthenticated: there is neither a key nor a token, and one is needed.
            Forbidden: the token is not for this reward.
            RateLimited: the token was used too often.
        """
        verdict = self._verdict(id, reward, keyed)
        self.seen[verdict] += 1
        if verdict == "valid" and not keyed:
            self._count_report(id)
        if verdict == "valid" or (keyed and verdict == "missing"):
            return
        if self.mode == "report" and (keyed or not self.guarded):
            return
        if verdict == "missing" and self.guarded:
            raise Unauthenticated("a key is needed, or the token that came with the decision")
        raise Forbidden(_WHY[verdict])

    def _count_report(self, id: str) -> None:
        """Count a use of a token: it is for one reward, and must not fill a journal."""
        now = self.clock() / 1e6
        if now >= self._reports_until or len(self._reports) >= MAX_REMEMBERED:
            self._reports.clear()
            self._reports_until = now + REPORT_SECONDS
        count = self._reports[id] = self._reports.get(id, 0) + 1
        if count > MAX_REPORTS:
            wait = self._reports_until - now
            message = f"a token may report {MAX_REPORTS} times in {REPORT_SECONDS:g} s"
            raise RateLimited(message, wait)

    def _verdict(self, id: str, reward: RewardBody, keyed: bool) -> str:
        if reward.token is None:
            return "missing"
        content = self._genuine(reward.token, id)
        if content is None:
            return "forged"
        ends, least, most = content
        if self.clock() >= ends * 1_000_000:
            return "expired"
        if not least <= reward.value <= most:
            return "range"
        # Of two rewards that contradict each other the one that happened first counts: with a time
        # of their own, anyone with the token could overturn an earlier report.
        if not keyed and (reward.part or reward.revision or reward.at is not None):
            return "part"
        return "valid"

    def _genuine(self, token: str, id: str) -> tuple[int, float, float] | None:
        """Return the expiry and range of a token, if it was signed here for this decision."""
        signer, _, text = token.partition(".")
        try:
            payload = base64.urlsafe_b64decode(text)[: _PAYLOAD.size]
            form, high, low, least, most = _PAYLOAD.unpack(payload)
        except (ValueError, struct.error):  # of base64: binascii.Error
            return None
        if signer not in self._macs or form != _FORM:
            return None
        # The whole text is compared, so that a token can be written in one way only.
        if not hmac.compare_digest(self._sign(signer, payload, id), token.encode()):
            return None
        return high << 8 | low, least, most

    def _sign(self, signer: str, payload: bytes, id: str) -> bytes:
        mac = self._macs[signer].copy()
        mac.update(payload + self._name + id.encode())
        return signer.encode() + b"." + base64.urlsafe_b64encode(payload + mac.digest())


#: For a bandit that makes no tokens, or that is not here: none is genuine.
NOBODY = RewardTokens(TokenSecrets({}), "", mode="enforce", guarded=True, least=0.0, most=0.0)

_WHY = {
    "missing": "this reward needs the token that came with its decision",
    "forged": "the token is not one of this decision",
    "expired": "the token has ended: a key is needed to report this reward",
    "range": "the reward is outside the range that the token is for",
    "part": "with a token alone a reward has neither part, revision nor time",
}
