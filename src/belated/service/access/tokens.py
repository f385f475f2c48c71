"""Reward tokens, which authorize reporting the reward of one decision without an API key.

A token consists of the id of the signing secret, a period, and 72 characters that encode the expiry
time, the allowed range of the reward, and an HMAC-SHA256 of these, the bandit and the decision.
Tokens are not stored: they are recomputed for verification.
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

#: Whether tokens are disabled, only verified and counted, or required.
TokenMode = Literal["off", "report", "enforce"]
#: Lifetime of a token if there is neither a reward window nor a retention, in microseconds.
LIFETIME = 30 * 86_400_000_000
#: Rate limit of a token that is used without a key: maximum number of reports, period in seconds
#: (per process), and number of tokens counted at a time, above which all counts are reset.
MAX_REPORTS, REPORT_SECONDS, MAX_REMEMBERED = 10, 60.0, 100_000
#: Possible results of token verification.
VERDICTS = ("valid", "missing", "forged", "expired", "range", "part")

_FORM = 1  # format version
_PAYLOAD = struct.Struct(">BIBdd")  # version, expiry in seconds (high 32 bits and low 8), range
_KEY = re.compile(r"([A-Za-z0-9_-]{1,16}):([A-Za-z0-9+/=_-]+)")
_MIN_SECRET_BYTES = 32


def check_bounded(rewards: Rewards, support: Interval) -> None:
    """Raise InvalidInput for unbounded rewards, because token holders could report any value."""
    if rewards.bounds is None and not math.isfinite(support.upper - support.lower):
        message = (
            "with tokens, rewards must be bounded, because anyone with a token can report a value"
        )
        remedy = f"{type(rewards).__name__}(…, bounds=(0, 100))"
        raise InvalidInput(f'{message}: add bounds, as in rewards = "{remedy}"')


class TokenSecrets:
    """The secrets for tokens. The first secret signs new tokens, and all secrets verify tokens.

    Args:
        secrets: Secrets by id.

    >>> TokenSecrets.read("b:" + "B" * 43 + "=,a:" + "A" * 43 + "=")
    TokenSecrets('b', 'a')
    """

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self.secrets = dict(secrets)

    @classmethod
    def read(cls, text: str) -> TokenSecrets:
        """Parse the value of an environment variable: ``id:base64`` pairs, separated by commas."""
        secrets: dict[str, bytes] = {}
        for number, part in enumerate(text.split(","), start=1):
            match = _KEY.fullmatch(part.strip())
            if match is None or match[1] in secrets:
                message = f"token key {number} must have the form id:base64, with a unique id"
                raise InvalidInput(message)
            id, encoded = match.groups()
            try:
                secret = base64.b64decode(encoded.replace("-", "+").replace("_", "/"))
            except binascii.Error:
                message = f"the secret of token key {id!r} is not valid base64"
                raise InvalidInput(f"{message}: use `openssl rand -base64 32`") from None
            if len(secret) < _MIN_SECRET_BYTES:
                message = f"the secret of token key {id!r} has only {len(secret)} bytes"
                message += f": use at least {_MIN_SECRET_BYTES}"
                raise InvalidInput(f"{message}, for example from `openssl rand -base64 32`")
            secrets[id] = secret
        return cls(secrets)

    def __repr__(self) -> str:
        return f"TokenSecrets({', '.join(map(repr, self.secrets))})"


@dataclass(eq=False)
class RewardTokens:
    """Creates and verifies the reward tokens of one bandit.

    Args:
        keys: Secrets that sign and verify tokens.
        bandit: Name of the bandit.
        mode: Whether rewards without a valid token are only counted, or rejected.
        guarded: Whether the service requires API keys. If so, a key can replace a token.
        lifetime: Lifetime of a token from the time of its decision, in microseconds.
        least: Minimum reward that can be reported.
        most: Maximum reward that can be reported.
        clock: Returns the time in microseconds since 1970.
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
        # Copying a keyed HMAC is faster than creating one for every token.
        self._macs = {name: hmac.new(secrets[name], digestmod="sha256") for name in secrets}
        self._signer = next(iter(secrets), "")
        name = self.bandit.encode()
        self._name = struct.pack(">H", len(name)) + name
        self._reports: dict[str, int] = {}
        self._reports_until = -math.inf
        #: Number of rewards, by the result of token verification.
        self.seen = dict.fromkeys(VERDICTS, 0)

    def of(self, decision: Decision) -> str:
        """Return the token for a decision. The same decision always gets the same token."""
        ends = -(-(decision.at_us + self.lifetime) // 1_000_000)
        payload = _PAYLOAD.pack(_FORM, ends >> 8 & 0xFFFFFFFF, ends & 0xFF, self.least, self.most)
        return self._sign(self._signer, payload, decision.id).decode()

    def check(self, id: str, reward: RewardBody, keyed: bool) -> None:
        """Raise an error unless a reward has the required key or token.

        Args:
            id: Id of the decision.
            reward: Reward as sent.
            keyed: Whether the request has a key with the scope ``reward``.

        Raises:
            Unauthenticated: the service requires keys, and there is neither a key nor a token.
            Forbidden: the token is missing, or not valid for this reward.
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
            raise Unauthenticated(
                "send an API key, or the token that was returned with the decision"
            )
        raise Forbidden(_WHY[verdict])

    def _count_report(self, id: str) -> None:
        """Count a use of a token, to limit how many records a single token can append."""
        now = self.clock() / 1e6
        if now >= self._reports_until or len(self._reports) >= MAX_REMEMBERED:
            self._reports.clear()
            self._reports_until = now + REPORT_SECONDS
        count = self._reports[id] = self._reports.get(id, 0) + 1
        if count > MAX_REPORTS:
            wait = self._reports_until - now
            message = f"a token may be used at most {MAX_REPORTS} times in {REPORT_SECONDS:g} s"
            raise RateLimited(message, wait)

    def _verdict(self, id: str, reward: RewardBody, keyed: bool) -> str:
        if reward.token is None:
            return "missing"
        content = self._genuine(reward.token, id)
        if content is None:
            return "forged"
        expiry, least, most = content
        if self.clock() >= expiry * 1_000_000:
            return "expired"
        if not least <= reward.value <= most:
            return "range"
        # If rewards conflict, the earliest counts. If callers could set the time, anyone with the
        # token could override a previous report.
        if not keyed and (reward.part or reward.revision or reward.at is not None):
            return "part"
        return "valid"

    def _genuine(self, token: str, id: str) -> tuple[int, float, float] | None:
        """Return the expiry and range of a token; None if it was not signed for this decision."""
        signer, _, text = token.partition(".")
        try:
            payload = base64.urlsafe_b64decode(text)[: _PAYLOAD.size]
            form, high, low, least, most = _PAYLOAD.unpack(payload)
        except (ValueError, struct.error):  # ValueError includes binascii.Error
            return None
        if signer not in self._macs or form != _FORM:
            return None
        # Compare the encoded text, so that each token has only one valid encoding.
        if not hmac.compare_digest(self._sign(signer, payload, id), token.encode()):
            return None
        return high << 8 | low, least, most

    def _sign(self, signer: str, payload: bytes, id: str) -> bytes:
        mac = self._macs[signer].copy()
        mac.update(payload + self._name + id.encode())
        return signer.encode() + b"." + base64.urlsafe_b64encode(payload + mac.digest())


#: Rejects all tokens. Used for unknown bandits and for bandits without tokens.
NOBODY = RewardTokens(TokenSecrets({}), "", mode="enforce", guarded=True, least=0.0, most=0.0)

_WHY = {
    "missing": "send the token that was returned with the decision",
    "forged": "the token is not valid for this decision",
    "expired": "the token has expired: an API key is required to report this reward",
    "range": "the value is outside the range that the token allows",
    "part": "part, revision and at require an API key, not just a token",
}
