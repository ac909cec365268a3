"""Answers to review questions in a file: whether tags of photos are right or wrong."""

from __future__ import annotations

from pathlib import Path

from visterm.core.errors import DataError, TagFileError
from visterm.data.tag_formats.tables import TableForm, find_column, required_column, table_rows
from visterm.library.catalogue import Catalogue
from visterm.library.search.reader import ids_of

VERDICTS = {
    **dict.fromkeys(("right", "yes", "y", "true", "1"), 1),
    **dict.fromkeys(("wrong", "no", "n", "false", "-1"), -1),
}
"""Text in the column `verdict` -> verdict; an empty cell leaves the question open."""


def store_answers(catalogue: Catalogue, text: str, path: Path) -> list[int]:
    """Store all answers of a table, or none if there is an error; return the verdicts, 0 for open questions.

    `text` is CSV or JSON lines with the columns image, tag, verdict and optionally id; `path` is its name in errors.
    Raises TagFileError if a column is missing or a verdict is invalid; DataError if a photo is not in the catalogue.
    """
    columns = (("image", "file_name"), ("tag",), ("verdict",))
    form = TableForm(columns, '{"image": "1.jpg", "tag": "sea", "verdict": "right"}')
    rows = table_rows(path, text, form)
    cells = list(dict.fromkeys(name for row in rows for name in row.cells))
    advice = f"Expected lines such as {form.example}, or a CSV with these columns."
    image_column, tag_column, verdict_column = (
        required_column(names, cells, str(path), "", advice) if rows else "" for names in columns
    )
    id_column = find_column(("id",), cells, str(path))
    verdicts = []
    with catalogue.stored.database.transaction():
        for row in rows:
            location, cell = f"{path}, line {row.line}", row.cells.get(verdict_column)
            answer = str("" if cell is None else cell).strip().lower()
            if answer and answer not in VERDICTS:
                raise TagFileError(
                    f"{location}: the verdict is {answer!r}; expected right or wrong, or nothing to leave it open."
                )
            verdicts.append(VERDICTS.get(answer, 0))
            if answer:
                image_id = _image_id(catalogue, location, row.cells.get(image_column), row.cells.get(id_column or ""))
                catalogue.judge(image_id, str(row.cells.get(tag_column) or ""), verdicts[-1])

    return verdicts


def _image_id(catalogue: Catalogue, location: str, name: object, id_cell: object) -> int:
    """Return the id of an answer's photo: from the column id, checked against the name, or else by name."""
    if id_cell in (None, ""):
        return ids_of(catalogue.stored, [str(name)])[0]
    if not str(id_cell).isdecimal():
        raise DataError(f"{location}: the id is {id_cell!r}; expected a whole number. Leave the column id out.")
    image_id = int(str(id_cell))
    stored_name = catalogue.image(image_id).record.name
    if stored_name != name:
        raise DataError(f"{location}: the photo {id_cell} is {stored_name}, and not {name}. Leave the column id out.")
    return image_id
