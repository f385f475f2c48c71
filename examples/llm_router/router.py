"""A router that chooses a language model for each prompt, and learns from late feedback.

    pip install belated
    python router.py

The program needs no network: the models' answers are simulated, and ``prompts.json`` contains the
embeddings of 64 prompts (TF-IDF, reduced to 16 numbers). In two simulated weeks, 6,000 prompts
arrive. Users rate two answers in three with a thumbs-up or a thumbs-down, after a median of 90
minutes. The reward is the rating, 1 or 0, minus the price of the answer. Rewards are reported by
conversation, so the chat system needs no decision ids.

The program prints how often the router chooses each model for each kind of prompt in the second
week, compares the router with always using the same model, and writes a report, ``router.html``.
"""

import heapq
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from belated import Bandit, Explicit, Gaussian, Holdout, MemoryJournal, PerArm, Vector

PROMPTS = json.loads(Path(__file__).with_name("prompts.json").read_text(encoding="utf-8"))
#: The price of an answer by each model, relative to the value of a thumbs-up.
PRICES = {"small": 0.02, "medium": 0.08, "large": 0.3}
#: Share of thumbs-up among the ratings, by kind of prompt and model; unknown to the router.
RATINGS = {
    "chat": {"small": 0.82, "medium": 0.85, "large": 0.86},
    "translate": {"small": 0.70, "medium": 0.84, "large": 0.88},
    "code": {"small": 0.15, "medium": 0.45, "large": 0.88},
    "math": {"small": 0.10, "medium": 0.35, "large": 0.80},
}
COUNT, MINUTE = 6_000, 60_000_000
START = 1_790_000_000_000_000  # microseconds since 1970


def main() -> None:
    now = START

    def clock() -> int:
        return now

    router = Bandit(
        PerArm(list(PRICES), context={"prompt": Vector(16)}),
        family=Gaussian(),
        rewards=Explicit("1d"),  # answers without a rating are not learned from
        holdout=Holdout(0.1, baseline="large"),  # for comparison, a tenth of the prompts
        journal=MemoryJournal(clock=clock),
        clock=clock,
        seed=1,
    )
    world = np.random.default_rng(2)
    ratings: list[tuple[int, str, float]] = []  # time, conversation and reward
    chosen: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(COUNT):
        now += round(world.exponential(3.4 * MINUTE))
        while ratings and ratings[0][0] <= now:
            at, conversation, reward = heapq.heappop(ratings)
            router.observe(subject=conversation, value=reward, event_id="rating", at=at)
        prompt = PROMPTS[world.integers(len(PROMPTS))]
        conversation = f"conversation-{number}"
        context = {"prompt": prompt["vector"]}
        decision = router.decide(context, id=f"prompt-{number}", subject=conversation)
        model = str(decision.action)
        if world.random() < 2 / 3:  # the other answers are never rated
            rating = float(world.random() < RATINGS[prompt["kind"]][model])
            delay = round(world.lognormal(np.log(90), 1.0) * MINUTE)
            heapq.heappush(ratings, (now + delay, conversation, rating - PRICES[model]))
        if number >= COUNT // 2:
            chosen[prompt["kind"]][model] += 1
    show(chosen)
    print(f"\n{router.lift()}")
    router.report().save("router.html")
    print("\nThe report: router.html")


def show(chosen: dict[str, Counter[str]]) -> None:
    """Print the choices, and the mean rating minus price under several rules."""
    print(f"{'':12}" + "".join(f"{model:>10}" for model in PRICES) + "      best")
    values: dict[str, list[float]] = defaultdict(list)
    for kind, counts in chosen.items():
        value = {model: RATINGS[kind][model] - price for model, price in PRICES.items()}
        best = max(value, key=lambda model: value[model])
        shares = "".join(f"{counts[model] / counts.total():10.0%}" for model in PRICES)
        print(f"{kind:12}{shares}{best:>10}")
        for model in PRICES:
            values[f"always {model}"].append(value[model])
        values["the router"].append(
            sum(value[model] * count for model, count in counts.items()) / counts.total()
        )
        values["the best for each kind"].append(value[best])
    print("\nMean rating minus price:")
    for rule, each in values.items():
        print(f"  {rule:24}{np.mean(each):.2f}")


if __name__ == "__main__":
    main()
