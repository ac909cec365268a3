"""Pictures of a report: small, so that the page stays small, and a word where there are none."""

from __future__ import annotations

from visterm.data.corpus import Corpus
from visterm.evaluation.html_report import Report

THUMBNAIL = 160
"""Pixels of the longer side: a JPEG of some 6 kB."""


def add_note_on_pictures(report: Report, corpus: Corpus) -> None:
    """Say why pictures are missing, where images are known by name only."""
    if all(isinstance(image, str) and image == name for image, name in zip(corpus.images, corpus.names, strict=True)):
        report.note("These images are known by name or number only, so there are no pictures of them to show.")
