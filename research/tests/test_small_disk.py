"""`visterm demo` and `visterm reproduce` end clean on a full disk, as visterm's own commands do."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from command_line import run_command
from small_disks import small_disk

COMMANDS = {
    "demo": "demo -o {folder}/new --scenes 100",
    "reproduce": "reproduce parts --quick -o {folder}/new --jobs 1",
}


@pytest.fixture
def disk():
    with ExitStack() as mounted:
        try:
            disk = mounted.enter_context(small_disk(6 * 2**20))
        except OSError as error:
            pytest.skip(str(error))
        yield disk


@pytest.mark.parametrize("room", [0, 200_000])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_clean_soon_after_it_began(name, room, disk, tmp_path):
    disk.leave(room)
    done = run_command(COMMANDS[name].format(folder=disk.folder).split(), tmp_path)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done
    assert last.startswith("visterm: "), done.stderr
    assert "disk" in last, last
    assert "full" in last or "space" in last, last
    assert not [path for path in disk.listed() if ".tmp" in str(path)]
