"""`visterm encode`: write the feature rows of photos as Parquet, in a job that may be killed and goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, say
from visterm.cli.progress import Bars
from visterm.core.remote import as_path
from visterm.core.wording import count_of

EXAMPLES = (
    "Examples:  visterm encode photos -o features   ·   visterm encode photos --encoder onnx:n.onnx -o features   ·   "
    "visterm encode new_photos --run run -o new_features   ·   "
    "visterm encode s3://bucket/photos -o s3://bucket/features   ·   visterm fit features --tags tags.csv -o run"
)


def encode(
    images: options.Images,
    out: Annotated[
        Path,
        options.output_option(
            "-o",
            "--out",
            help="The features folder to write, or to bring up to date; also in an object store (s3://BUCKET/NAME).",
            parser=as_path,
        ),
    ],
    encoder: Annotated[
        str | None,
        options.model_option(
            help="How images become features: a name from `visterm encoders`, or name:argument "
            "[default: visterms; of a features folder: its own].",
        ),
    ] = None,
    encoder_set: options.EncoderSettings = None,
    run: Annotated[Path | None, options.model_option("--run", help="Take the encoder of this fitted run.")] = None,
    shard_size: Annotated[
        int | None,
        options.scale_option(min=1, help="Images in a shard, about: what a kill loses [default: 512]."),
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    jobs: options.Jobs = None,
    ray: options.Ray = None,
) -> None:
    """Write the feature rows of a folder of photos as Parquet files, with the encoder that made them.

    After a kill the same command goes on. Given again later, it encodes only what is new or changed, and drops what is
    gone. `visterm fit`, `tune`, `evaluate` and `index` take the folder in place of IMAGES. The exit code is 3 if images
    were skipped.
    """
    from visterm.core.jsonlines import read_skipped
    from visterm.features.folder import DATA, SKIPPED
    from visterm.features.job import encode_folder

    began = time.monotonic()
    done = encode_folder(
        images,
        out,
        encoder=encoder,
        encoder_params=options.settings(encoder_set or [], "--encoder-set"),
        run=run,
        shard_size=shard_size,
        seed=seed,
        executor=options.executor_of(ray, jobs),
        progress=Bars(),
    )
    seconds = time.monotonic() - began
    if json:
        rate = done.encoded / seconds
        emit({"features": str(out), **done.as_dict(), "seconds": seconds, "images_per_second": rate})
    if ray is not None and not done.shared:
        say("--ray ignored: all photos are in one shard, which was made here. --shard-size makes smaller ones.")
    say(
        f"{count_of(done.rows, 'row')} of {done.width:,} numbers in {count_of(done.shards, 'file')} of {out / DATA}: "
        f"{done.encoded:,} encoded, {done.reused:,} taken over, {done.gone:,} gone"
    )
    raise typer.Exit(exit_code(read_skipped(out / SKIPPED), out / SKIPPED))
