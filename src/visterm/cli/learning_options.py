"""Options of the commands that learn: what they learn from, and the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from visterm.cli.completion import model_names
from visterm.cli.options import argument, input_option, model_option, output_option
from visterm.core.remote import as_path

ImagesOrCatalogue = Annotated[
    list[Path] | None,
    argument(
        help="A folder of photos, one or more folders of features written by `visterm encode`, or a catalogue. Leave "
        "it out if the tag file names the images (--encoder ids or precomputed).",
        parser=as_path,
    ),
]
Out = Annotated[Path | None, output_option("-o", "--out", help="The run to write, a folder.")]
OutRequired = Annotated[Path, output_option("-o", "--out", help="The run to write, a folder.")]
Full = Annotated[bool, input_option("--full", help="With a catalogue: learn everything again, not only the tags.")]
Queries = Annotated[
    Path | None, input_option(help="Learn from queries: a table with the columns query, image and relevance.")
]

ModelName = Annotated[
    str | None,
    model_option(help="A name from `visterm models` [default: auto; with ids wsabie].", autocompletion=model_names),
]
ModelToTune = Annotated[
    str, model_option(help="The model: a name from `visterm models`.", show_default=True, autocompletion=model_names)
]
ModelSettings = Annotated[
    list[str] | None, model_option("--set", help="A setting of the model, NAME=VALUE. Repeat for more.")
]
WordVectors = Annotated[
    str | None,
    model_option(
        help="Where word vectors come from, by which searches find words that aren't tags: 'encoder' (its text tower), "
        "a file, 'sentences', 'learned' or 'learned:skipgram'.",
        metavar="SOURCE",
    ),
]

Words = Annotated[
    Path | None, model_option("--words", help="Words, one a line, that are tags even without a photo.", metavar="FILE")
]
MinCount = Annotated[int, input_option(min=1, help="Leave out tags of fewer photos.", show_default=True)]
Tree = Annotated[
    str | None,
    input_option(help="Which tags lie under which: a CSV of child,parent, or 'paths' (animals/dog).", metavar="SOURCE"),
]
