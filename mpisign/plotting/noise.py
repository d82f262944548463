"""The noise of gradients, as `mpisign.noise` measures it, and what a vote makes of it.

Where several measurements can stand side by side, a mapping names them, as in {"before": …, "after 5 epochs": …}.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import seeding, theory
from .axes import COLORS, color, new_axes, with_corner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..noise import GradientNoise

_BLUE, _ORANGE, _GREY = COLORS[0], COLORS[1], "#777777"
_CRITICAL = "S = 2/√3"


def histogram(noise: "GradientNoise", coordinate: int, ax: "Axes | None" = None, bins: int = 30) -> "Axes":
    """Draw a kept coordinate's samples, and the normal distribution of their mean and deviation.

    Args:
        noise: what `measure` returned.
        coordinate: one of `noise.kept`; ValueError for another.
        ax: where to draw; a new figure by default.
        bins: how many.
    """
    edges, density = noise.histogram(coordinate, bins)
    values = noise.of(coordinate).astype(np.float64)
    ax = ax or new_axes(5, 3.4)
    ax.stairs(density, edges, fill=True, color=COLORS[5], label=f"{noise.count} minibatches")
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    if deviation > 0:
        x = np.linspace(min(edges[0], mean - 3 * deviation), max(edges[-1], mean + 3 * deviation), 300)
        normal = np.exp(-(((x - mean) / deviation) ** 2) / 2) / (deviation * np.sqrt(2 * np.pi))
        ax.plot(x, normal, color=COLORS[6], linewidth=1.5, label="normal, same mean and σ")
    ax.axvline(0, color=_GREY, linewidth=1, linestyle=":")
    ax.axvline(noise.gradient[coordinate], color=_ORANGE, linewidth=2, label="true gradient")
    with_corner(ax, f"gradient of {noise.name(coordinate)}", "density")
    ax.ticklabel_format(axis="both", style="sci", scilimits=(-2, 3))
    ax.set_ylim(0, 1.45 * ax.dataLim.y1)  # the legend stands above the bars
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    figures = f"S = {noise.snr[coordinate]:.2f}\nρ = {noise.success[coordinate]:.2f}"
    ax.text(0.98, 0.97, figures, transform=ax.transAxes, ha="right", va="top", fontsize=10)
    return ax


def snr(noise: "GradientNoise | Mapping[str, GradientNoise]", ax: "Axes | None" = None) -> "Axes":
    """Draw how S is spread over the used coordinates, with the line 2/√3 beyond which signs converge fastest.

    A coordinate without noise counts in the last bin.
    """
    named = _named(noise)
    ax = ax or new_axes(6, 3.4)
    ratios = {name: one.snr[one.used] for name, one in named.items()}
    least = min((float(ratio.min()) for ratio in ratios.values() if ratio.size), default=0.1)
    edges = np.geomspace(min(max(least, 1e-3), 0.1), 10, 61)
    for number, (name, ratio) in enumerate(ratios.items()):
        shares = np.histogram(np.clip(ratio, edges[0], edges[-1]), edges)[0] / max(ratio.size, 1)
        above = f"{theory.share_above_critical(ratio):.1%} above 2/√3"
        ax.stairs(100 * shares, edges, color=color(number), linewidth=2, label=f"{name}: {above}" if name else above)
    ax.axvline(theory.CRITICAL_SNR, color=_GREY, linestyle="--", linewidth=1.2)
    ax.set_xscale("log")
    with_corner(ax, "signal-to-noise ratio S = |g| / σ of a coordinate", "share of coordinates (%)")
    ax.set_ylim(0, (1.2 + 0.12 * len(named)) * ax.dataLim.y1)
    ax.text(theory.CRITICAL_SNR * 1.1, 0.62 * ax.get_ylim()[1], _CRITICAL, color=_GREY, fontsize=10)
    ax.legend(frameon=False, fontsize=10, loc="upper left")
    return ax


def success(noise: "GradientNoise", ax: "Axes | None" = None, most: int = 4000) -> "Axes":
    """Draw each used coordinate's ρ over its S, against Lemma 1's bound; no more than `most` of them, drawn by lot.

    Those that lie more than three standard errors below the bound have noise that is not symmetric with one mode. S is
    drawn at .01 where it is less, and at 10 where it is more.
    """
    ax = ax or new_axes(6, 4.6)
    drawn = np.flatnonzero(noise.used)
    if len(drawn) > most:
        drawn = seeding.generator(0, seeding.SHARED, "coordinates to draw").choice(drawn, most, replace=False)
    low, high = 0.01, 10.0
    below = noise.success + 3 * noise.success_error < noise.promised_success
    kinds = [(~below, _BLUE, "o", "keeps the bound"), (below, _ORANGE, "x", "below it by > 3 standard errors")]
    for which, shade, marker, label in kinds:
        chosen = drawn[which[drawn]]
        share = np.mean(which[noise.used]) if noise.used.any() else 0.0
        x, y = np.clip(noise.snr[chosen], low, high), noise.success[chosen]
        ax.plot(x, y, marker, color=shade, markersize=3, alpha=0.45, label=f"{label}: {share:.1%}", rasterized=True)
    x = np.geomspace(low, high, 300)
    ax.plot(x, 1 - theory.lemma1_bound(x), color=COLORS[6], linewidth=2, label="1 − Lemma 1's bound")
    ax.axhline(0.5, color=_GREY, linewidth=1, linestyle=":")
    ax.axvline(theory.CRITICAL_SNR, color=_GREY, linestyle="--", linewidth=1.2)
    ax.set_xscale("log")
    with_corner(ax, "signal-to-noise ratio S = |g| / σ", "success probability ρ of a sign")
    ax.set_ylim(min(0.4, float(noise.success[drawn].min(initial=1))) - 0.02, 1.02)
    ax.text(theory.CRITICAL_SNR * 1.1, ax.get_ylim()[0] + 0.01, _CRITICAL, color=_GREY, fontsize=10)
    legend = ax.legend(frameon=False, fontsize=10, loc="lower left", bbox_to_anchor=(0, 1))  # points may lie anywhere
    for handle in filter(None, legend.legend_handles):
        handle.set_alpha(1)
    return ax


def vote_failure(workers: Sequence[int] = (7, 15, 27), inverting: float = 0.0, ax: "Axes | None" = None) -> "Axes":
    """Draw over S how often a vote is wrong or tied under Gaussian noise, exactly and as bounded behind Theorem 2.

    Args:
        workers: M of each pair of lines.
        inverting: the share of them that invert, in [0, ½), rounded down to whole workers.
        ax: where to draw; a new figure by default.
    """
    from scipy.special import ndtr  # type: ignore[import-untyped]

    if not 0 <= inverting < 0.5:
        raise ValueError(f"inverting must be a share in [0, ½), since the bound needs a majority; got {inverting}")
    ax = ax or new_axes(6, 4)
    x = np.geomspace(0.05, 3, 200)
    for number, size in enumerate(workers):
        liars = int(inverting * size)
        label = f"{size} workers" + (f", {liars} inverting" if liars else "")
        ax.plot(x, theory.vote_failure(ndtr(-x), size, liars), color=color(number), linewidth=2, label=label)
        bound = theory.vote_failure_bound(ndtr(-x), size, liars)
        ax.plot(x[bound <= 1], bound[bound <= 1], color=color(number), linewidth=1.5, linestyle="--")
    ax.plot([], [], color=_GREY, linewidth=2, label="exact")
    ax.plot([], [], color=_GREY, linewidth=1.5, linestyle="--", label="bound, where below 1")
    ax.plot(x, ndtr(-x), color=COLORS[6], linewidth=1, linestyle=":", label="1 worker")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(1e-4, 1.2)
    with_corner(ax, "signal-to-noise ratio S of one worker's gradient", "probability of a wrong or tied vote")
    ax.legend(frameon=False, fontsize=10, loc="lower left")
    return ax


def rho_norms(
    noise: "GradientNoise | Mapping[str, GradientNoise]",
    workers: Sequence[int] = tuple(range(1, 28, 2)),
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the ρ_M-norm of the gradient, as a share of its l1-norm, over the number M of voters."""
    ax = ax or new_axes(6, 3.6)
    for number, (name, one) in enumerate(_named(noise).items()):
        whole = float(np.abs(one.gradient).sum()) or 1.0
        shares = [100 * one.rho_norm(size) / whole for size in workers]
        ax.plot(workers, shares, "o-", color=color(number), linewidth=2, markersize=5, label=name or None)
        if name:
            ax.annotate(name, (workers[-1], shares[-1]), (8, 0), textcoords="offset points", fontsize=10, va="center")
    ax.axhline(100, color=_GREY, linestyle="--", linewidth=1.2)
    ax.text(workers[0], 101, "no noise", color=_GREY, fontsize=10, va="bottom")
    if len(workers) <= 16:
        ax.set_xticks(workers)
    ax.set_ylim(min(0.0, ax.dataLim.y0), 112)
    with_corner(ax, "number of voters M", r"$\|g\|_{\rho_M}$ (% of $\|g\|_1$)")
    return ax


def _named(noise: "GradientNoise | Mapping[str, GradientNoise]") -> "Mapping[str, GradientNoise]":
    """The measurements by name; a single one has none."""
    return noise if isinstance(noise, Mapping) else {"": noise}
