"""A process that is killed while it writes loses nothing that was committed, and the next one goes on."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

from empty_catalogues import empty_catalogue
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.images import NewImage
from visterm.store.segments import segments_of

WRITES = """
import sys
import numpy as np
import scipy.sparse as sp
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import NewImage

catalogue, kind = StoredCatalogue.open(sys.argv[1]), sys.argv[2]
if kind == "lance":
    import lancedb  # takes longer than the process is given
print("ready", flush=True)
step = 0
while True:
    step += 1
    n = catalogue.images.count()
    numbers = np.arange(n, n + 3)
    U = np.outer(numbers, [1, 0, 2]).astype(np.float32)
    rows = sp.csr_array(U) if kind == "csr" else U
    catalogue.add([NewImage(str(i), f"/photos/{i}", 1, 2, 3, "0") for i in numbers], rows)
    print("added", n + 3, flush=True)
    catalogue.tags.judge(n, "sea", 1)
    print("judged", n, flush=True)
    if step % 4 == 0:
        changed = [0, n]
        catalogue.set_rows(changed, rows[:2] * 0 + (sp.csr_array(U[:2]) if kind == "csr" else U[:2]))
        catalogue.set_rows(changed, (sp.csr_array if kind == "csr" else np.asarray)(
            np.outer(changed, [1, 0, 2]).astype(np.float32)))
    if step % 7 == 0:
        catalogue.compact(least=0.0)
"""


@pytest.mark.parametrize("kind", ["dense", "csr", "lance"])
def test_nothing_that_was_committed_is_lost_however_often_the_writer_is_killed(tmp_path, kind):
    folder = tmp_path / "catalogue"
    made = empty_catalogue(folder, Origin("", "f00d"))
    if kind == "lance":
        pytest.importorskip("lancedb", reason="the extra lance is not installed")
        made.keep_in_lance()
    made.close()
    rng = np.random.default_rng(4)
    left: set[int] = set()
    for lines in range(3):
        said = kill_after(lines, rng.uniform(0.02, 0.25), folder, kind)
        catalogue = StoredCatalogue.open(folder)
        n = catalogue.images.count()
        assert n >= max([int(line.split()[1]) for line in said if line.startswith("added")], default=0)
        assert n % 3 == 0
        assert [image.name for image in catalogue.images.all()] == [str(i) for i in range(n)]
        rows = catalogue.current_rows().rows(np.arange(n))
        dense = rows.toarray() if sp.issparse(rows) else rows
        if n:
            changed = np.flatnonzero((dense != np.outer(np.arange(n), [1, 0, 2])).any(axis=1))
            assert len(set(changed.tolist()) - left) <= 2  # between the two changes of rows; nobody mends those left
            left |= set(changed.tolist())
            assert (dense[changed, 1] == 0).all()
        accepted = {verdict.image_id for verdict in catalogue.tags.feedback(limit=10**6)}
        assert accepted >= {int(line.split()[1]) for line in said if line.startswith("judged")}
        assert catalogue.database.check() == []
        with catalogue.writing():  # a kill has left no lock
            sizes = {file.name: file.stat().st_size for file in folder.glob("rows/*/ids.i64")}
        n_rows = [segment.n_rows for segment in segments_of(catalogue.database)]
        assert list(sizes.values()) == [8 * count for count in n_rows]
        catalogue.close()
    assert n > 0


def kill_after(lines, seconds, folder, kind):
    """Let a process write some lines and some seconds longer, kill it, and return the lines of what is done."""
    child = subprocess.Popen([sys.executable, "-c", WRITES, str(folder), kind], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout.readline() == "ready\n"
        said = "".join(child.stdout.readline() for _ in range(lines))
        time.sleep(seconds)
        child.kill()
        said += child.stdout.read()
    return said[: said.rfind("\n") + 1].splitlines()


def test_rows_written_by_a_transaction_that_never_ended_are_not_there_and_are_written_over(tmp_path):
    made = empty_catalogue(tmp_path / "catalogue", Origin("", "f00d"))
    made.add([NewImage("a", None, 1, 2, 3, "0")], [[1.0, 2.0]])
    script = f"""
import os
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import NewImage
catalogue = StoredCatalogue.open({str(made.folder)!r})
with catalogue.transaction():
    catalogue.add([NewImage("lost", None, 1, 2, 3, "0")] * 5, [[7.0, 7.0]] * 5)
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 9
    (file,) = made.folder.glob("rows/*/rows.f32")
    assert file.stat().st_size == 4 * 12
    assert len(StoredCatalogue.open(made.folder)) == 1
    made.add([NewImage("b", None, 1, 2, 3, "0")], [[3.0, 4.0]])
    assert file.stat().st_size == 4 * 4
    assert StoredCatalogue.open(made.folder).current_rows().rows([0, 1]).tolist() == [[1, 2], [3, 4]]
