"""The reward tokens of a bandit, by its definition."""

from __future__ import annotations

from collections.abc import Callable

from belated.exceptions import InvalidInput
from belated.service.access.tokens import LIFETIME, RewardTokens, TokenSecrets, check_bounded
from belated.service.serving.definition import Definition


def tokens_of(
    definition: Definition, keys: TokenSecrets | None, guarded: bool, clock: Callable[[], int]
) -> RewardTokens:
    """Return what makes and checks the tokens of a bandit, as its definition says."""
    if keys is None:
        message = f"{definition.name} makes tokens, and there are no keys to sign them with"
        raise InvalidInput(f"{message}: add secrets_env under [tokens]", definition.name)
    check_bounded(definition.rewards, definition.policy.family.support)
    least, most = definition.rewards.range(definition.policy.family.support)
    learned = definition.retention or definition.rewards.window_us or LIFETIME
    return RewardTokens(
        keys,
        definition.name,
        mode=definition.tokens,
        guarded=guarded,
        lifetime=definition.token_lifetime or learned,
        least=least,
        most=most,
        clock=clock,
    )
