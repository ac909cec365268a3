"""Table 3 and Figure 1 of the VSE-ens paper: negatives drawn for a pair, as measured, as training goes on."""

from __future__ import annotations

from visterm_research.comparison.arms import VSE_WARP
from visterm_research.comparison.claims import Claim
from visterm_research.comparison.figures import Line, draw_lines
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.record import Record
from visterm_research.comparison.run import Comparison
from visterm_research.papers import vse_ens as paper


def complexity_part(comparison: Comparison, problem: Problem) -> None:
    """Table 3: the paper's complexity of a step, and the draws and microseconds of a pair as measured."""
    tested = comparison.tested[problem.name]
    n_pairs = int((problem.train.Y > 0).sum())
    rows = []
    for label in dict.fromkeys([*paper.TABLE_3, *tested]):
        curve = [] if label not in tested else _drawn(tested[label].chosen.record["curve"])
        if not curve:
            if label in paper.TABLE_3:
                rows.append([label, paper.TABLE_3[label], "–", "–", "–", "–"])
            continue
        draws = sum(point["draws"] for point in curve) / len(curve)
        steps = sum(point["violated"] for point in curve) / len(curve)
        rows.append(
            [
                label,
                paper.TABLE_3.get(label, "–"),
                f"{draws:.2f}",
                f"{steps:.1%}",
                f"{draws / steps:.2f}" if steps else "–",
                f"{1e6 * curve[-1]['seconds'] / (len(curve) * n_pairs):.2f}",
            ]
        )
    header = (
        "method",
        "complexity (paper)",
        "draws a pair",
        "pairs that make a step",
        "draws a step",
        "microseconds a pair",
    )
    comparison.document.table(f"Table 3 on {problem.name}: what a step takes", header, rows)
    comparison.document.text(
        "Means over the epochs of the chosen setting. k is the size of the embedding, T the mean number of draws."
    )


def draws_part(comparison: Comparison, problem: Problem) -> None:
    """Figure 1: draws until a violator is found, epoch by epoch; and how good the models are meanwhile."""
    curves = {label: _drawn(tested.chosen.record["curve"]) for label, tested in comparison.tested[problem.name].items()}
    curves = {label: curve for label, curve in curves.items() if curve}
    if not curves:
        return
    draws: dict[str, Line] = {
        label: ([p["epoch"] for p in curve], [p["draws"] for p in curve]) for label, curve in curves.items()
    }
    name = f"figures/draws-{problem.name}.png"
    draw_lines(comparison.out / name, [(problem.name, draws)], x="epoch", y="draws a pair (mean)")
    theirs = ", ".join(f"{count:,} on {data}" for data, (count, _) in paper.FIGURE_1.items())
    comparison.document.picture(
        name, f"Figure 1 on {problem.name}: negatives drawn for a pair. The paper's WARP levels off at about {theirs}."
    )
    gains: dict[str, Line] = {
        label: (
            [p["seconds"] for p in curve if p["map"] is not None],
            [p["map"] for p in curve if p["map"] is not None],
        )
        for label, curve in curves.items()
    }
    name = f"figures/training-{problem.name}.png"
    draw_lines(
        comparison.out / name,
        [(problem.name, gains)],
        x="seconds of training",
        y="MAP over the validation images",
        log_x=True,
    )
    comparison.document.picture(name, f"After how much training, on {problem.name} (chosen settings).")
    if VSE_WARP.label in curves:
        comparison.claims.append(_more_draws(problem, curves[VSE_WARP.label]))


def _more_draws(problem: Problem, curve: list[Record]) -> Claim:
    first, last = curve[0]["draws"], curve[-1]["draws"]
    verdict = "yes" if last > 1.1 * first else "no" if last < first / 1.1 else "too close to call"
    return Claim(
        f"WARP's draws after {len(curve)} epochs",
        "after the first one",
        "number (the search takes longer as training goes on)",
        "Figure 1, NUS-WIDE",
        problem.name,
        (f"about {paper.FIGURE_1['NUS-WIDE'][0]:,}", "few"),
        (f"{last:.2f}", f"{first:.2f}"),
        verdict,
        relation="higher than",
    )


def _drawn(curve: list[Record]) -> list[Record]:
    return [point for point in curve if point["draws"] is not None]
