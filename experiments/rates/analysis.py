"""How regret grows, as tables and a picture, from ``table.csv``.

Prints the exponent of the regret in T, d and K beside the one in the paper's bound, d √T log T for
any K; the extra regret that a delay costs over no delay on the same seeds, at both horizons, with
its growth in the mean delay μ and in T, beside the paper's √(μT); which law of the extra regret
fits both horizons; and the regret under Lomax delays of one median. Intervals are of 95 %, from
resampling seeds.

Run: python -m experiments.rates.analysis
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from belated import delays
from experiments.figures import save
from experiments.rates import fits
from experiments.rates.figure import figure
from experiments.rates.fits import Array, Fit
from experiments.rates.problems import (
    ARMS,
    BASE,
    DIMS,
    GEOMETRIC,
    HORIZON,
    LOMAX,
    LONG,
    MEDIAN,
    ROUNDS,
    WORLDS,
)
from experiments.rates.regrets import Regrets
from experiments.runs import publish, read
from experiments.tables import cell, rule

#: Exponents in the paper's bound: d √T log T, whatever K is.
RATES = {"T": 0.5, "d": 1.0, "K": 0.0}
#: Of what a delay of mean μ adds to the regret after T rounds.
LAWS: dict[str, Callable[[Array, Array], Array]] = {
    "c·μ": lambda mu, t: mu,
    "c·√μ": lambda mu, t: np.sqrt(mu),
    "c·√(μT), the paper's": lambda mu, t: np.sqrt(mu * t),
}


def reading(fit: Fit, rate: float) -> str:
    """The measured exponent beside the one of the bound."""
    if fit.high < rate:
        return "the bound is loose"
    if fit.low > rate:
        return "faster than the bound, which is far above"
    return "as in the bound"


def exponents(regrets: Regrets) -> list[str]:
    """Of the regret in T, d and K."""
    lines = ["**Exponents of the regret**", ""]
    lines += rule("in", ["problem", "delay", "range", "exponent", "bound", "reading"])
    late = [t for t in ROUNDS if t >= HORIZON]
    for world in WORLDS:
        cases = [
            ("T", delay, xs, regrets.over_rounds(world, delay, xs))
            for delay in ("0", BASE)
            for xs in (list(ROUNDS), late)
        ]
        cases += [("d", BASE, list(DIMS), regrets.over_dims(world))]
        cases += [("K", BASE, list(ARMS), regrets.over_arms(world))]
        for name, delay, xs, values in cases:
            fit = fits.exponent(np.array(xs, dtype=float), values)
            row = [name, world, delay, f"{xs[0]:,}–{xs[-1]:,}", f"{fit}", f"{RATES[name]:g}"]
            lines.append("| " + " | ".join([*row, reading(fit, RATES[name])]) + " |")
    return [*lines, ""]


def extra(regrets: Regrets) -> list[str]:
    """The extra regret of a delay, at both horizons."""
    lines = ["**Extra regret over no delay**, paired; the paper's law has it ∝ √(μT)", ""]
    means, times = regrets.means, (HORIZON, LONG)
    columns = [f"T = {HORIZON:,}", f"T = {LONG:,}", "growth from one to the other", "by √T"]
    for world in WORLDS:
        short, long = (regrets.extra(world, t) for t in times)
        lines += [f"*{world}*", "", *rule("mean delay μ", columns)]
        for i, mean in enumerate(means):
            growth = fits.resampled((long - short)[:, [i]], lambda values: float(values.mean()))
            paper = (np.sqrt(LONG / HORIZON) - 1.0) * short[:, i].mean()
            cells = [f"{v[:, i].mean():.0f}±{fits.errors(v)[i]:.0f}" for v in (short, long)]
            row = [f"{mean:,.0f}", *cells, f"{growth:+.0f}", f"{paper:+.0f}"]
            lines.append("| " + " | ".join(row) + " |")
        lines.append("")
    return lines


def trends(regrets: Regrets) -> list[str]:
    """The growth of the extra regret in μ and in T."""
    lines = ["**The extra regret in μ and in T**; the paper's law has exponent 0.5 in both", ""]
    lines += rule("problem", ["T", "a in a·μ", "b in μ^b", "exponent in T", "reading"])
    for world in WORLDS:
        short, long = regrets.extra(world, HORIZON), regrets.extra(world, LONG)
        growth = in_time(short, long)
        for t, values, fit in ((HORIZON, short, ""), (LONG, long, f"{growth}")):
            b = fits.power(regrets.means, values)
            a = fits.slope(regrets.means, values)
            row = [world, f"{t:,}", f"{a:.3f}", f"{b}", fit, words(b, growth) if fit else ""]
            lines.append("| " + " | ".join(row) + " |")
    return [*lines, ""]


def laws(regrets: Regrets) -> list[str]:
    """Which law of the extra regret fits both horizons at once."""
    lines = ["**One law for all mean delays and both horizons**: regret without delay + what is"]
    lines += ["named; misfit is how far the means are from it, in standard errors (root mean"]
    lines += ["square).", ""]
    columns = [f"{world}, {column}" for world in WORLDS for column in ("c", "misfit")]
    lines += rule("law", columns)
    mu = np.tile(regrets.means, 2)
    t = np.repeat([HORIZON, LONG], len(regrets.means)).astype(float)
    best: dict[str, tuple[float, str]] = {}
    for name, shape in LAWS.items():
        row = []
        for world in WORLDS:
            table = np.hstack([regrets.extra(world, time) for time in (HORIZON, LONG)])
            c, off = fits.misfit(shape(mu, t), table)
            row += [f"{c:.3g}", f"{off:.1f}"]
            best[world] = min(best.get(world, (np.inf, "")), (off, name))
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    summary = "; ".join(f"{world}: {name}" for world, (_, name) in best.items())
    lines += ["", f"The best of the three: {summary}. As to c·√μ: of geometric delays the first n"]
    return [*lines, "rewards have come by about round √(2nμ), however long the rest takes.", ""]


def in_time(short: Array, long: Array) -> Fit:
    """The exponent in T of the extra regret, all mean delays added up."""
    pair = np.stack([short.sum(axis=1), long.sum(axis=1)], axis=1)
    step = np.log(LONG / HORIZON)
    return fits.resampled(
        pair,
        # A sum that chance has brought below 1 counts as 1: there is no logarithm of it.
        lambda values: float(np.diff(np.log(np.maximum(values.mean(axis=0), 1.0)))[0] / step),
    )


def words(b: Fit, growth: Fit) -> str:
    """What the two exponents say."""
    in_mean = "at most linear in μ" if b.high <= 1.0 else "not shown to be at most linear in μ"
    in_time = "grows with T" if growth.low > 0.0 else "does not grow with T beyond noise"
    slower = ", and slower than √T" if growth.high < 0.5 else ""
    return f"{in_mean}; {in_time}{slower}"


def tails(regrets: Regrets) -> list[str]:
    """Lomax delays of one median, from light to heavy, with the geometric one."""
    lines = [f"**Tails**: delays of one median, {MEDIAN} rounds, T = {HORIZON:,}", ""]
    columns = ["mean", "outstanding at T", *(f"{world} (paired t)" for world in WORLDS)]
    lines += rule("delay", columns)
    for name, law in {BASE: GEOMETRIC[BASE], **LOMAX}.items():
        outstanding = float(delays.expected_missing(law, HORIZON))
        cells = [cell(*regrets.pair(w, name, BASE)) for w in WORLDS]
        row = [f"{law.mean:,.0f}", f"{outstanding:,.0f}", *cells]
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return [*lines, ""]


def main() -> None:
    table, path = read(__doc__, Path(__file__).parent)
    regrets = Regrets(table)
    parts = [exponents(regrets), extra(regrets), trends(regrets), laws(regrets), tails(regrets)]
    publish("\n".join(line for part in parts for line in part), path)
    save(figure(regrets), path)


if __name__ == "__main__":
    main()
