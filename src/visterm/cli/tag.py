"""`visterm tag` and `visterm judge`: add and remove tags of photos by hand, and judge suggested tags."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import visterm
from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import at_a_terminal, emit, percent, say, show, table
from visterm.core.errors import UserError
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.data import relations, text_files
    from visterm.library import answers as answer_files
    from visterm.library import feedback, review, steps
    from visterm.library.search import reader

if TYPE_CHECKING:
    from visterm.library.review import ReviewItem


EXAMPLES = (
    ("visterm tag catalogue photos/7.jpg 8.jpg --add 'red fox'", "tag photos by hand"),
    ("visterm tag catalogue 7.jpg --remove dog --remove wolf", "remove wrong tags"),
    ("visterm tag catalogue 7.jpg", "show its tags"),
    ("visterm tag catalogue --undo 12", "take back a step"),
)

Tags = list[str] | None
KEYS = "y right  n wrong  s skip  u undo  q quit"


def tag(
    catalogue: options.CatalogueFolder,
    photos: Annotated[
        list[str] | None, options.argument(help="Photos of the catalogue: files, or names as searches show.")
    ] = None,
    add: Annotated[Tags, options.which_option(help="Add this tag, any word. Repeat for more.")] = None,
    remove: Annotated[
        Tags, options.which_option(help="Remove this tag, and mark it as wrong. Repeat for more.")
    ] = None,
    undo: Annotated[
        int | None, options.which_option(help="Take back all of a step, by its number.", metavar="STEP")
    ] = None,
    json: options.Json = False,
) -> None:
    """Tag photos of a catalogue by hand, or show their tags.

    Searches and exports use it at once; `visterm fit CATALOGUE` learns from it. All photos are changed or, after
    an error, none. `visterm judge` asks about tags that visterm suggests.
    """
    changes = [f"{', '.join(tags)} {verb}" for verb, tags in (("added", add), ("removed", remove)) if tags]
    if undo is None and not photos:
        raise UserError(
            "PHOTOS are missing. Name at least one photo of the catalogue, or a step to take back (--undo)."
        )

    if undo is not None and (photos or changes):
        raise UserError("--undo takes back a whole step. Leave the photos and tags out.")
    opened = visterm.Catalogue.load(catalogue)
    if undo is not None:
        images = steps.undo_step(opened, undo).images
        say(f"Step {undo} is taken back: {count_of(len(images), 'photo')}")
    else:
        images = reader.ids_of(opened.stored, photos or [])

    if changes:
        step = steps.tag_photos(opened, images, give=add or (), take=remove or (), wrong=remove or ())
        say(
            f"{count_of(len(images), 'photo')}: {'; '.join(changes)}. To learn from it: visterm fit "
            f"{catalogue}; to take it back: visterm tag {catalogue} --undo {step.number}"
        )

    for image_id in images:
        image = opened.image(image_id)
        rejected = sorted(name for name, verdict in image.verdicts.items() if verdict < 0)
        if json:
            emit({"image": image.record.name, "id": image_id, "tags": image.tags, "rejected": rejected})
        else:
            show(
                f"{image.record.name}: {', '.join(image.tags)}" + (f" (not {', '.join(rejected)})" if rejected else "")
            )


JUDGE_EXAMPLES = (
    ("visterm judge catalogue", "answer 20 questions by keys"),
    ("visterm judge catalogue -k 100 -o questions.csv", "write questions for a spreadsheet"),
    ("visterm judge catalogue --answers questions.csv", "store the answers"),
)


def judge(
    catalogue: options.CatalogueFolder,
    k: Annotated[int, typer.Option("-k", min=1, help="Maximum number of questions.")] = 20,
    answers: Annotated[
        Path | None,
        options.input_option(
            help="Store these answers: a CSV or JSON lines with the columns image, tag and verdict (right or wrong); "
            "- for standard input.",
            allow_dash=True,
        ),
    ] = None,
    out: Annotated[
        Path | None, options.out_option(help="Write the questions to this CSV, with an empty column verdict.")
    ] = None,
) -> None:
    """Judge which suggested tags are right.

    The questions are those whose answers teach most. In a terminal you answer by keys; otherwise they are listed.
    Answers count at once in searches and exports; `visterm fit CATALOGUE` learns from them.
    """
    opened = visterm.Catalogue.load(catalogue)
    if answers is not None:
        if answers == Path("-"):
            verdicts = answer_files.store_answers(opened, sys.stdin.read(), Path("standard input"))
        else:
            verdicts = answer_files.store_answers(opened, text_files.read_text(answers, or_utf16=True), answers)
        _finish(opened, verdicts)
        return

    questions = review.review_queue(opened.stored, k, tree=opened.tree)
    names = {item.image_id: opened.image(item.image_id).record for item in questions}
    if out is not None:
        rows = [[names[q.image_id].name, q.tag, "", "; ".join(q.why)] for q in questions]
        relations.write_pairs(out, ("image", "tag", "verdict", "why"), rows)
        say(f"{count_of(len(questions), 'question')} written to {out}. Fill in the column verdict: right or wrong.")

    if not questions:
        say("There is nothing to ask: all suggestions are answered.")
    elif out is None and at_a_terminal():
        paths = {image_id: record.path or record.name for image_id, record in names.items()}
        _finish(opened, _ask(opened, questions, paths))
    elif out is None:
        table([[q.tag, names[q.image_id].name, "; ".join(q.why)] for q in questions], ["tag", "photo", "why"])


def _ask(catalogue: visterm.Catalogue, questions: list[ReviewItem], paths: dict[int, str]) -> list[int]:
    """Ask the questions on the terminal, and store each answer at once; return the verdicts, 0 if left open."""
    verdicts: list[tuple[int, int]] = []  # (verdict, its number in the log)
    say(KEYS)
    while len(verdicts) < len(questions):
        item = questions[len(verdicts)]
        confidence_text = "" if item.confidence is None else f", {percent(item.confidence)}"
        show(f"{len(verdicts) + 1}/{len(questions)}  {item.tag}?  {paths[item.image_id]}{confidence_text}")
        try:
            key = typer.getchar().lower()
        except EOFError:  # Ctrl-D
            break
        if key in ("y", "n"):
            verdict = 1 if key == "y" else -1
            verdicts.append((verdict, catalogue.judge(item.image_id, item.tag, verdict)))
        elif key == "s":
            verdicts.append((0, 0))
        elif key == "u" and verdicts:
            verdict, number = verdicts.pop()
            if verdict:
                feedback.undo_verdict(catalogue.stored, number)
        elif key in ("q", "\x1b"):  # Escape
            break
        else:
            say(KEYS)

    return [verdict for verdict, _ in verdicts] + [0] * (len(questions) - len(verdicts))


def _finish(catalogue: visterm.Catalogue, verdicts: list[int]) -> None:
    right, wrong, skipped = (verdicts.count(verdict) for verdict in (1, -1, 0))
    learn_hint = f" To learn from it: visterm fit {catalogue.stored.folder}" if right or wrong else ""
    say(f"{right:,} right, {wrong:,} wrong, {skipped:,} left open.{learn_hint}")
