"""Draw the pictures of docs/methods/: the idea of each family of models, computed where it can be.

    python docs/make_pictures.py             # all; or the names of some

Needs the extra `plot`. The same code draws the same bytes.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np

from visterm.models import KernelRidge, Ridge

FOLDER = Path(__file__).resolve().with_name("methods")
RIGHT, WRONG, PHOTO, QUIET = "#1b7f4d", "#c0392b", "#1f4e9c", "#9aa0a6"
STYLE = {
    "svg.hashsalt": "visterm", "svg.fonttype": "path", "font.size": 10, "axes.spines.top": False,
    "axes.spines.right": False, "figure.facecolor": "white",
}  # fmt: skip


def panels(*titles: str, **more: Any) -> tuple[Any, Any]:
    """Return a figure with a panel for each title, side by side."""
    figure, axes = plt.subplots(1, len(titles), figsize=(8, 3.1), layout="constrained", **more)
    for axis, title in zip(np.atleast_1d(axes), titles, strict=True):
        axis.set_title(title, fontsize=10.5, loc="left")
    return figure, axes


def bare(axis: Any) -> None:
    """Take the ticks away."""
    axis.set_xticks([])
    axis.set_yticks([])


def ranking() -> Any:
    """Draw a ranked list with its violators, and what a rank costs in each loss."""
    figure, (left, right) = panels("the tags of one photo, by score", "what a right tag costs at each rank")
    scores = {"sky": 2.1, "people": 1.65, "snow": 1.2, "car": 0.75, "tree": 0.3, "cat": -0.4, "boat": -0.9}
    places = np.arange(len(scores))[::-1]
    colours = [RIGHT if tag in ("snow", "sky") else WRONG if score > 0.2 else QUIET for tag, score in scores.items()]
    left.barh(places, [score + 1.5 for score in scores.values()], color=colours, height=0.62)
    left.set_yticks(places, list(scores))
    left.set_xticks([])
    left.axvline(1.2 + 1.5 - 1, color="black", lw=1, ls=":")
    left.text(1.2 + 0.54, -0.3, "score of snow − 1", fontsize=8.5)
    left.text(3.75, 3.0, "red: violators of snow,\nfound by drawing\nwrong tags", va="top", ha="right", fontsize=8.5)
    ranks = np.arange(1, 101)
    right.plot(ranks, np.cumsum(1 / ranks), color=RIGHT, lw=2, label="WARP: 1 + 1/2 + ... + 1/rank")
    right.plot(ranks, ranks / 20, color=WRONG, lw=2, label="AUC: in proportion to the rank")
    right.set_xlabel("rank of a right tag")
    right.set_ylabel("cost")
    right.legend(frameon=False, fontsize=8.5)
    return figure


def pamir() -> Any:
    """Draw the photos of a query on a line before and after a step."""
    figure, axes = panels("before a step, the query “snow tree”", "after it", sharey=True)
    rng = np.random.default_rng(3)
    others = rng.uniform(0.1, 0.9, 9)
    for axis, shift in zip(axes, (0.0, 0.22), strict=True):
        bare(axis)
        axis.spines[["left", "bottom"]].set_visible(False)
        axis.axhline(0, color="black", lw=0.8)
        axis.scatter(others, np.zeros(9), s=70, color=QUIET, zorder=2)
        good, bad = 0.42 + shift, 0.55 - shift
        axis.scatter([good], [0], s=150, color=RIGHT, zorder=3)
        axis.scatter([bad], [0], s=150, color=WRONG, zorder=3)
        axis.text(good, 0.035, "relevant", ha="center", color=RIGHT)
        axis.text(bad, -0.052, "not relevant", ha="center", color=WRONG)
        axis.set_ylim(-0.12, 0.12)
        axis.set_xlim(0, 1)
        axis.set_xlabel("score of photos for the query  →")
    return figure


def parts() -> Any:
    """Draw two pictures and two labels, with the three scores between them."""
    figure, axis = panels("f = how well each label fits its picture + how well the labels fit each other")
    bare(axis)
    axis.axis("off")
    axis.set_xlim(0, 8)
    axis.set_ylim(0, 3)
    for x, name in ((1.6, "car"), (6.4, "wheel")):
        axis.add_patch(plt.Rectangle((x - 0.75, 0.15), 1.5, 0.95, fill=False, ec=PHOTO, lw=1.6))
        axis.text(x, 2.5, name, ha="center", va="center", fontsize=13, color=RIGHT)
        axis.annotate("", (x, 2.25), (x, 1.15), arrowprops={"arrowstyle": "<->", "color": PHOTO, "lw": 1.6})
    axis.add_patch(plt.Polygon([(1.05, 0.5), (1.3, 0.78), (1.85, 0.78), (2.15, 0.5)], color=QUIET))
    for x, y, size in ((1.3, 0.45, 0.11), (1.9, 0.45, 0.11), (6.4, 0.62, 0.38)):
        axis.add_patch(plt.Circle((x, y), size, color="#444444"))
        axis.add_patch(plt.Circle((x, y), size / 2, color="white"))
    axis.annotate("", (5.75, 2.5), (2.15, 2.5), arrowprops={"arrowstyle": "<->", "color": RIGHT, "lw": 1.6})
    axis.text(4, 2.62, "a wheel is part of a car", ha="center", color=RIGHT)
    axis.text(1.8, 1.62, "picture and label", color=PHOTO)
    axis.text(6.2, 1.62, "picture and label", color=PHOTO, ha="right")
    return figure


def deep() -> Any:
    """Draw a photo in the words' space, pulled to its tags and pushed from a few drawn ones."""
    figure, axis = panels("the words' space: only drawn words move")
    bare(axis)
    rng = np.random.default_rng(5)
    axis.scatter(*rng.uniform((-3, -1.2), (3, 1.2), (70, 2)).T, s=16, color="#d5d8dc")
    axis.scatter([0], [0], s=170, marker="*", color=PHOTO, zorder=3)
    axis.text(0.08, -0.22, "the photo,\nplaced by the network", color=PHOTO, va="top")
    for word, x, y in (("snow", 1.1, 0.75), ("ski", 1.75, 0.15)):
        axis.scatter([x], [y], s=60, color=RIGHT)
        axis.text(x + 0.08, y + 0.06, word, color=RIGHT)
        axis.annotate("", (x * 0.62, y * 0.62), (x * 0.95, y * 0.95), arrowprops={"arrowstyle": "->", "color": RIGHT})
    for word, x, y in (("beach", -1.0, 0.7), ("car", -1.6, -0.35), ("rose", 1.5, -0.85)):
        axis.scatter([x], [y], s=60, color=WRONG)
        axis.text(x + 0.08, y + 0.06, word, color=WRONG)
        axis.annotate("", (x * 1.3, y * 1.3), (x * 1.04, y * 1.04), arrowprops={"arrowstyle": "->", "color": WRONG})
    return figure


def linear() -> Any:
    """Fit ridge with two penalties and kernel ridge to one feature, and draw their scores."""
    figure, (left, right) = panels("ridge: a line through 0 and 1", "kernel ridge: a curve", sharey=True)
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-1, 1, 60))
    both = np.column_stack([np.abs(x + 0.1) < 0.45, np.ones(60)]).astype(np.int8), np.column_stack([x > 0, np.ones(60)])
    rows = np.column_stack([np.cos(2 * x), np.sin(2 * x)]).astype(np.float32)
    for alpha, style in ((0.01, "-"), (60.0, "--")):
        model = Ridge(alpha=alpha).fit(x[:, None].astype(np.float32), both[1].astype(np.int8))
        scores = model.decision_function(x[:, None].astype(np.float32))[:, 0]
        left.plot(x, scores, style, color=PHOTO, lw=2, label=f"alpha {alpha:g}")
    left.scatter(x, both[1][:, 0], s=14, color=[RIGHT if has else QUIET for has in both[1][:, 0]])
    for gamma, style in ((1.0, "-"), (0.1, "--")):
        model = KernelRidge(gamma=gamma, alpha=0.03).fit(rows, both[0])
        right.plot(x, model.decision_function(rows)[:, 0], style, color=PHOTO, lw=2, label=f"gamma {gamma:g}")
    right.scatter(x, both[0][:, 0], s=14, color=[RIGHT if has else QUIET for has in both[0][:, 0]])
    for axis in (left, right):
        axis.set_xlabel("a feature of the photo")
        axis.legend(frameon=False, fontsize=8.5)
    left.set_ylabel("has the tag · score")
    return figure


def neighbours() -> Any:
    """Draw a new photo among others, its nearest ones, and their votes."""
    figure, (left, right) = panels("the nearest photos of a new one", "their votes, by how similar they are")
    rng = np.random.default_rng(8)
    points, tags = rng.normal(0, 1, (60, 2)), rng.choice(["snow", "tree", "sky"], 60, p=[0.3, 0.4, 0.3])
    distance = np.hypot(*points.T)
    near = np.argsort(distance)[:9]
    colours = {"snow": RIGHT, "tree": "#b7791f", "sky": PHOTO}
    for tag, colour in colours.items():
        left.scatter(*points[tags == tag].T, s=34, color=colour, alpha=0.75, label=tag)
    left.add_patch(plt.Circle((0, 0), distance[near[-1]] + 0.04, fill=False, ls=":"))
    left.scatter([0], [0], marker="*", s=190, color="black", zorder=3)
    left.set_aspect("equal")
    bare(left)
    left.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1, 0.5))
    votes = {tag: float(np.exp(-distance[near])[tags[near] == tag].sum()) for tag in colours}
    total = sum(votes.values())
    right.barh(list(votes), [vote / total for vote in votes.values()], color=list(colours.values()), height=0.55)
    right.set_xlabel("share of the votes")
    return figure


def generative() -> Any:
    """Draw the probability of each training photo given a new one, and the tags that follow."""
    figure, (left, middle, right) = panels(
        "visterms of a new photo", "which photos would give them", "their tags, mixed"
    )
    counts = np.array([4, 0, 7, 2, 1, 5])
    left.bar(np.arange(6), counts, color=PHOTO)
    left.set_xlabel("visterm")
    rng = np.random.default_rng(2)
    photos = rng.dirichlet(np.ones(6) * 0.9, 7) * 0.7 + 0.3 / 6
    likely = np.exp(np.log(photos) @ (counts / 4))
    likely /= likely.sum()
    middle.bar(np.arange(1, 8), likely, color=QUIET)
    middle.set_xlabel("training photo")
    has = rng.random((7, 4)) < 0.5
    right.barh(["sky", "snow", "tree", "car"], likely @ has, color=RIGHT, height=0.55)
    right.set_xlabel("P(tag | photo)")
    return figure


def blend() -> Any:
    """Draw how the weight between two models is chosen on held-out photos, from scores that are drawn."""
    figure, axis = panels("MAP over held-out photos, by the weight of one of two models")
    rng = np.random.default_rng(4)
    truth = rng.random((400, 30)) < 0.1
    one, two = (truth + rng.normal(0, noise, truth.shape) for noise in (0.42, 0.5))
    weights = np.linspace(0, 1, 21)
    found = [mean_ap(w * one + (1 - w) * two, truth) for w in weights]
    axis.plot(weights, found, color=PHOTO, lw=2)
    best = int(np.argmax(found))
    axis.scatter([weights[best]], [found[best]], s=90, color=RIGHT, zorder=3)
    axis.annotate("the blend", (weights[best], found[best]), (-24, -18), textcoords="offset points", color=RIGHT)
    axis.annotate("the second model alone", (0, found[0]), (8, -3), textcoords="offset points")
    axis.annotate("the first model alone", (1, found[-1]), (-8, -12), textcoords="offset points", ha="right")
    axis.set_xlabel("weight of the first model")
    return figure


def mean_ap(scores: Any, truth: Any) -> float:
    """Return MAP over photos."""
    from visterm.metrics import average_precisions

    return float(np.nanmean(average_precisions(scores.astype(np.float32), truth.astype(np.int8))))


PICTURES: dict[str, Callable[[], Any]] = {
    each.__name__: each for each in (ranking, pamir, parts, deep, linear, neighbours, generative, blend)
}


def main() -> None:
    with mpl.rc_context(STYLE):
        for name in sys.argv[1:] or PICTURES:
            figure = PICTURES[name]()
            figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
