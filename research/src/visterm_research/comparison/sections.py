"""The parts of a report that papers share: data, settings that were chosen, claims, what was not finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from visterm_research.comparison.claims import RESAMPLES
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.run import Comparison, Outcome

JUDGED = (
    f": intervals are of {RESAMPLES:,} resamples of the test images; single measurements of time and bytes count as "
    "equal within a tenth."
)


def introduction(document: Document, paper: str, *, quick: bool, left_out: Sequence[str]) -> None:
    """Say what this is, and what it is not."""
    document.text(
        f"Paper: {paper}. Data, features and machines are not the paper's: orders can be compared, figures cannot."
    )
    if quick:
        document.text("**A quick run on tiny drawn data: it says that everything runs, and nothing about methods.**")
    if left_out:
        document.text(f"Left out on request: {', '.join(left_out)}.")


def finish(comparison: Comparison, document: Document, *, quick: bool, left_out: Sequence[str]) -> Outcome:
    """Put the claims before the parts on each problem, the settings and what is missing behind, and write all."""
    body, comparison.document = comparison.document, document
    claims_part(comparison)
    document.parts.extend(body.parts)
    document.tables.extend(body.tables)
    settings_part(comparison)
    unfinished_part(comparison)
    return comparison.write({"quick": quick, "left_out": list(left_out)})


def settings_part(comparison: Comparison) -> None:
    """Say how settings were chosen, and which."""
    document = comparison.document
    document.section(
        "Settings",
        "Every method was fitted with each setting of its grid on the training rows; the one of the best MAP over the "
        "validation images was judged by the test rows, once. Iterative methods stop by the same validation images.",
    )
    rows = []
    for problem, arms in comparison.tested.items():
        for label, tested in arms.items():
            chosen = tested.chosen
            names = [name for name in chosen.settings if name in chosen.arm.grid]
            setting = ", ".join(f"{name}={chosen.settings[name]}" for name in names) or "–"
            diverged = sum(record["map"] is None for record in chosen.tried)
            epoch = chosen.record["epoch"]
            rows.append(
                [
                    problem,
                    label,
                    f"{len(chosen.tried)}" + (f" ({diverged} diverged)" if diverged else ""),
                    setting,
                    f"{chosen.record['map']:.4f}",
                    "–" if epoch is None else str(epoch),
                    f"{chosen.record['seconds']:.1f}",
                ]
            )
    header = ("data", "method", "settings tried", "chosen", "validation MAP", "best epoch", "seconds of its fit")
    document.table("Settings chosen on validation rows", header, rows)


def claims_part(comparison: Comparison, judged: str = JUDGED) -> None:
    """Say which orders of the paper hold here, and how that is judged."""
    document, claims = comparison.document, comparison.claims
    counts = Counter(claim.verdict for claim in claims)
    document.section(
        "Does the paper's order hold here?",
        f"Of {len(claims)} comparisons, {counts['yes']} hold, {counts['no']} do not, and "
        f"{counts['too close to call']} are too close to call{judged}",
    )
    document.items([claim.sentence for claim in claims])


def unfinished_part(comparison: Comparison) -> None:
    """Name what there was no time for."""
    if comparison.unfinished:
        comparison.document.section(
            "Not finished", "There was no time for these; the same command with the same folder goes on with them."
        )
        comparison.document.items(comparison.unfinished)
