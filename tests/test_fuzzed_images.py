"""Whatever bytes stand in an image file, it is encoded or listed with a reason: no crash, no hang, no file lost."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fuzzed_files
from fuzzed_files import DAMAGES, case, sound_files
from visterm.data.images import Decoded, decode_images
from visterm.data.pillow import FORMATS
from visterm.encoders.visterms import Visterms

LONGEST = 5.0
"""Seconds of processor time that any file may take."""
PATIENCE = 600.0
"""Seconds that the child may take to start, or to answer on a machine that does much else: beyond them it hangs."""

ALL = 10_000
SOME = len(sound_files()) * len(DAMAGES)
"""Each file damaged once in each way."""


def answers(first: int, end: int, folder: Path) -> Iterator[tuple[int, dict]]:
    """Encode cases in a process of its own, so that one that kills it can be named."""
    with (folder / "stderr").open("w") as errors:
        child = subprocess.Popen(
            [sys.executable, fuzzed_files.__file__, str(first), str(end)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=_pass_on, args=(child.stdout, lines), daemon=True)
    reader.start()
    at = "the start"
    try:
        while line := lines.get(timeout=PATIENCE):
            if line.strip().isdigit():
                at = f"case {int(line)} ({case(int(line)).name})"
                number = int(line)
            elif line.strip() != "ready":
                yield number, json.loads(line)
        assert child.wait() == 0, f"the process ended with {child.returncode} at {at}"
    except queue.Empty:
        pytest.fail(f"no answer for {PATIENCE} seconds at {at}")
    finally:
        child.kill()
        child.wait()
        reader.join()
        child.stdout.close()


def _pass_on(lines, to):
    for line in lines:
        to.put(line)
    to.put("")


def check(first: int, end: int, folder: Path) -> None:
    found = dict(answers(first, end, folder))
    assert sorted(found) == list(range(first, end))
    for number, answer in found.items():
        name = f"case {number} ({case(number).name}): {answer}"
        assert answer["rows"] + len(answer["reasons"]) == 1, name
        assert answer["finite"], name
        assert answer["seconds"] < LONGEST, name
        assert all(5 < len(reason) <= 160 and "\n" not in reason for reason in answer["reasons"]), name
    encoded = sum(answer["rows"] for answer in found.values())
    assert 0.1 < encoded / len(found) < 0.9  # some damage does no harm, and most does


def test_each_kind_of_file_damaged_in_each_way_is_encoded_or_listed(tmp_path):
    check(0, SOME, tmp_path)


@pytest.mark.slow
def test_ten_thousand_damaged_files_are_encoded_or_listed(tmp_path):
    check(SOME, ALL, tmp_path)


def test_damaged_files_read_by_several_threads_are_all_encoded_or_listed(tmp_path):
    rng = np.random.default_rng(0)
    encoder = Visterms(colours=4, codebook=12, scales=(1.0,), max_side=64, sample_blocks=200, n_jobs=1)
    encoder.fit(list(rng.integers(0, 256, (6, 32, 48, 3), np.uint8)))
    paths = [tmp_path / str(number) for number in range(120)]
    for number, path in enumerate(paths):
        path.write_bytes(case(number).content)
    expected = encoder.encode(paths)
    listed = {item.image for item in expected.skipped}
    assert {str(paths[i]) for i in expected.kept} == {str(path) for path in paths} - listed
    assert len(expected.kept) + len(expected.skipped) == 120
    found = encoder.set_params(n_jobs=3).encode(paths)
    assert found.kept.tolist() == expected.kept.tolist()
    assert found.skipped == expected.skipped


def test_a_case_that_kills_the_process_is_named(tmp_path, monkeypatch):
    program = tmp_path / "dies.py"
    program.write_text("import os, signal\nprint('ready\\n7', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr(fuzzed_files, "__file__", str(program))
    with pytest.raises(AssertionError, match=rf"ended with -11 at case 7 \({case(7).name}\)"):
        list(answers(7, 8, tmp_path))


def test_the_undamaged_files_are_of_every_format_that_can_be_saved_and_can_all_be_read(tmp_path):
    paths = []
    for name, content in sound_files().items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    assert [item for item in decode_images(paths, n_jobs=1) if not isinstance(item, Decoded)] == []
    formats = {Image.open(BytesIO(content)).format for content in sound_files().values()}
    assert formats == {name for name in FORMATS if name in Image.OPEN and name in Image.SAVE} | {"MPO", "DIB"}


def test_a_case_is_the_same_whenever_it_is_made():
    assert case(123) == case(123)
    assert len({case(number).content for number in range(SOME)}) > 0.95 * SOME
