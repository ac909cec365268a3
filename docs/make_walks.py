"""Write the three walks of docs/architecture.md from what the commands really pass; `--check` says if they are stale.

A station is named by its function; the file that it is in comes from the trace. When a station goes, change it here."""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from harness.walks import Step, walks  # noqa: E402

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- walks: made by `make docs` -->\n", "<!-- end of walks -->\n"

TITLES = {
    "annotate": "An image to its tags (`visterm annotate run photo.jpg`)",
    "search": "A query to its ranking (`visterm search catalogue sky tree`)",
    "fit": "A fit to its kernel (`visterm fit features --tags tags.csv --model wsabie`)",
}
STATIONS = {
    "annotate": {
        "annotate": "the command: parse, call, print",
        "TaggerEstimator.load": "open the run",
        "annotate_each": "go through the images chunk by chunk",
        "AnyEncoder.encode": "from images to X, without unreadable ones",
        "Visterms._encode_batch": "the encoder's own work",
        "nearest_words": "kernel: the nearest visterm of each block",
        "Annotator.annotate": "from X to ids and scores of tags",
        "EmbeddingRanker._image_rows": "the model's own work: U",
        "top_k_products": "the best of U · Vᵀ without the score matrix",
        "stream_best": "kernel: keep the k best of a block",
        "Calibration.confidences": "from scores to confidences",
    },
    "search": {
        "search": "the command: parse, call, print",
        "Catalogue.load": "open the catalogue and the run of its rows",
        "Run.open": "read the parts of the run that a search needs",
        "CatalogueReader.search": "words in, photos out, in five steps",
        "typed_query": "parse: match words with tags, weigh them by idf",
        "plan_ranking": "by confidence, by the sum of scores, or by their product",
        "manual_tags": "candidates and judgements: what people said about the words",
        "ByConfidence.rank": "rank, by how likely a photo is to have all words",
        "CurrentRows.products": "the scores of the words, for the committed rows",
        "Calibration.log_confidences": "from scores to the chance of all words",
        "merge": "photos that people tagged first, then the others by score",
    },
    "fit": {
        "fit": "the command: parse, call, print",
        "fit_run": "the same for the command line and Python",
        "training_rows": "from photos and tags to X and Y",
        "Annotator.fit": "check X and Y, fit, refuse weights that are not finite",
        "draw_violators": "kernel: draw tags until one outranks the true one",
        "weigh_pairs": "kernel: the weight of each step by the estimated rank",
        "add_tag_steps": "kernel: move the tag rows",
        "with_confidences": "fit confidences to images that were held out",
        "Run.save": "write the run, whole or not at all",
    },
}
"""The functions that a reader should look up, in the order of their first calls, and what each does."""


def stations_of(name: str, steps: list[Step]) -> list[str]:
    """Return a line for each station, with its file, or stop where the trace does not pass it in this order."""
    lines, place = [], 0
    for function, what in STATIONS[name].items():
        found = next((number for number in range(place, len(steps)) if steps[number].function == function), None)
        if found is None:
            sys.exit(
                f"The walk '{name}' does not pass {function} after {lines[-1] if lines else 'its start'}. "
                "Change STATIONS in docs/make_walks.py, then run: make docs"
            )
        lines.append(f"1. `{steps[found]}`: {what}")
        place = found + 1
    return lines


def walked() -> str:
    with tempfile.TemporaryDirectory() as folder:
        traced = dict(walks(ROOT / "src" / "visterm", Path(folder)))
    parts = [
        f"**{title}**\n\n" + "\n".join(stations_of(name, traced[name].functions)) for name, title in TITLES.items()
    ]
    return "\n" + "\n\n".join(parts) + "\n\n"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    fresh = f"{head}{BEGIN}{walked()}{END}{tail}"
    if "--check" in sys.argv:
        sys.exit("docs/architecture.md has stale walks; run: make docs" if fresh != text else 0)
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
