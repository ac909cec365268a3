"""Made-up libraries of any size, with tags on one photo, on half, on all, and what must hold of a fit to them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import visterm
from visterm import Tagger
from visterm.core.tables import MODELS

SHARES = ("one", "half", "all but one", "all")

OF_COUNTS = {"cmrm", "cmtt", "plsa"}  # Models that take no features below 0


@st.composite
def libraries(draw: st.DrawFn, package: str, blend: dict[str, Any]) -> dict[str, Any]:
    """Draw features of photos, the tags of each, a tree of the tags, and a model of a package with its settings."""
    n = draw(st.one_of(st.integers(2, 12), st.integers(2, 400)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    n_have = dict(zip(SHARES, (1, n // 2, n - 1, n), strict=True))
    shares = draw(st.lists(st.sampled_from(SHARES), min_size=1, max_size=5))
    names = [f"tag {number} on {share}" for number, share in enumerate(shares)]
    tags: list[list[str]] = [[] for _ in range(n)]
    for name, share in zip(names, shares, strict=True):
        for photo in rng.permutation(n)[: n_have[share]]:
            tags[photo].append(name)
    trees = {
        "none": None, "a root": [(name, "root") for name in names],
        "a chain": list(zip(names, [*names[1:], "root"], strict=True)),
    }  # fmt: skip
    learn = [entry.name for entry in MODELS if entry.package == package and (not entry.extra or find_spec(entry.extra))]
    name = draw(st.sampled_from([*learn, "a blend"]))
    model = "auto" if name == "a blend" else name
    params = blend if name == "a blend" else MODELS.load(model).test_params
    short = {"epochs": 2, "n_jobs": 1}
    settable = MODELS.create(model).get_params(deep=False)
    numbers = rng.normal(size=(n, 6))
    rows = {
        "numbers": np.abs(numbers) if model in OF_COUNTS else numbers, "counts": rng.poisson(1, (n, 6)),
        "all alike": np.ones((n, 6)), "nothing": np.zeros((n, 6)),
    }  # fmt: skip
    return {
        "rows": rows[draw(st.sampled_from(list(rows)))].astype(np.float32), "tags": tags,
        "tree": trees[draw(st.sampled_from(list(trees)))], "model": model,
        "model_params": params | {key: value for key, value in short.items() if key in settable},
    }  # fmt: skip


def check_fit(library: dict[str, Any], folder: Path) -> None:
    """Fit to a library and check that the run opens, and annotates with every tag, score and chance."""
    photos = [f"{number:03}.jpg" for number in range(len(library["tags"]))]
    np.save(folder / "rows.npy", library["rows"])
    (folder / "rows.names.txt").write_text("\n".join(photos))
    visterm.fit(
        photos, library["tags"], encoder=f"precomputed:{folder / 'rows.npy'}", tree=library["tree"],
        model=library["model"], model_params=library["model_params"], out=folder / "run",
    )  # fmt: skip
    done = Tagger.load(folder / "run").annotate(photos, 0)
    assert [image.image for image in done.images] == photos
    known = {tag for given in library["tags"] for tag in given}
    for image in done.images:
        assert known <= {tag.tag for tag in image.tags}
        assert np.isfinite([tag.score for tag in image.tags]).all()
        assert all(tag.confidence is None or 0 <= tag.confidence <= 1 for tag in image.tags)
