"""`visterm encode`: write the feature rows of photos as Parquet, in a job that may be killed and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.completion import encoder_names
from visterm.cli.output import Bars, exit_code, say, say_not_read
from visterm.core.remote import as_path
from visterm.core.wording import count_of

EXAMPLES = (
    ("visterm encode photos -o features", "visterms, the default"),
    ("visterm encode photos --encoder onnx:net.onnx -o features", "a network of your own"),
    ("visterm encode new_photos --encoder run -o new_features", "the encoder of a run"),
    ("visterm encode s3://bucket/photos -o s3://bucket/features", "object stores"),
)


def encode(
    images: options.Images,
    out: Annotated[
        Path,
        options.output_option(
            "-o", "--out", help="The features folder to write or update; also s3://BUCKET/NAME.", parser=as_path
        ),
    ],
    encoder: Annotated[
        str | None,
        options.model_option(
            help="How photos become features: a name from `visterm encoders`, NAME:ARGUMENT, or a run whose encoder is "
            "used [default: the first network listed there that is on this machine, or visterms; or the folder's own].",
            autocompletion=encoder_names,
        ),
    ] = None,
    encoder_set: options.EncoderSettings = None,
    shard_size: Annotated[
        int | None,
        options.scale_option(
            min=1, help="About how many photos go into one file; if stopped, at most one file is lost [default: 512]."
        ),
    ] = None,
    ray: options.Ray = None,
) -> None:
    """Compute the features of photos once, to use them again.

    Other commands take the features folder instead of the photos, and are faster.
    Run it again to go on after a stop, and to encode new and changed photos. The exit code is 3 if photos were skipped.
    """
    from visterm.core.jsonlines import read_skipped
    from visterm.core.persist import folder_kind
    from visterm.features.folder import SKIPPED
    from visterm.features.job import encode_folder

    run = Path(encoder) if encoder is not None and folder_kind(Path(encoder)) == "run" else None
    done = encode_folder(
        images, out, encoder=None if run else encoder, run=run, shard_size=shard_size,
        encoder_params=options.settings(encoder_set or [], "--encoder-set"), executor=options.executor_of(ray), say=say,
        progress=Bars(),
    )  # fmt: skip
    say_not_read([images])
    if ray is not None and not done.shared:
        say("--ray ignored: all photos are in one shard, which was made here. --shard-size makes smaller ones.")
    say(
        f"Wrote the features of {count_of(done.rows, 'photo')} to {out}: {done.encoded:,} new, {done.reused:,} "
        f"unchanged, {done.gone:,} removed ({done.width:,} numbers each, {count_of(done.shards, 'file')})."
    )
    raise typer.Exit(exit_code(read_skipped(out / SKIPPED), out / SKIPPED))
