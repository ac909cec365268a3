"""How well `visterm tags --suggest` tells misspellings from other words, on a small library of the experiment."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))

from tag_suggestions import measured, planted


def test_planted_misspellings_are_told_from_other_words_by_the_photos():
    # A library of the experiment: 30 misspellings and plurals, and 30 pairs of other words a slip or two apart.
    library = planted(30, 1500, 0)
    found, by_letters = (measured([library], photos=photos) for photos in (True, False))
    assert found["precision"] > max(0.75, 1.3 * by_letters["precision"])
    assert found["recall"] > 0.7
    assert found["neighbours taken for one word"] <= 5 < by_letters["neighbours taken for one word"]
