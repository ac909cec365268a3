"""Fixtures that tests of visterm and of research share."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No test depends on how fast a machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

NO_NETWORKS = tempfile.TemporaryDirectory(prefix="visterm-no-networks-")
# Read when huggingface_hub is imported: what lies in the developer's cache, or in a table of networks, changes no test.
for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE"):
    os.environ.pop(name, None)
os.environ["HF_HOME"] = NO_NETWORKS.name
os.environ["VISTERM_NETWORKS"] = os.path.join(NO_NETWORKS.name, "networks.toml")
# In tests the default encoder is visterms: they draw small pictures, which need no network, and expect its figures.
Path(os.environ["VISTERM_NETWORKS"]).write_text("""
[effnet-lite]
good_for = "nothing: this row hides visterm's own"
licence = "none"
image = { file = "effnet-lite.onnx" }
""")
# Ray lets all other processes go before its workers: on a busy machine tests would wait for minutes.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray's own name, which has small letters


LONG = (
    "test_reproduce_features", "test_watch", "test_web_", "test_pages", "test_every_", "test_reproduce", "test_export",
    "test_photoprism_",
)  # fmt: skip
"""Beginnings of the names of files that take long, in the order in which they begin: those of Ray, all in one process,
before them, and of those that compile kernels one at first, so that the others find them compiled."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send all tests of a file to one worker, and all files that use a Ray engine to the same one: it starts once."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByEngine(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "ray" if uses_ray(config.rootpath / file) else file

    return ByEngine(config, log)


@cache
def uses_ray(file: Path) -> bool:
    return "ray_engine" in file.read_text(encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let files that take long begin first: short ones at the end let all workers end together."""

    def place(item: pytest.Item) -> int:
        found = (number for number, start in enumerate(LONG) if item.path.name.startswith(start))
        return -1 if uses_ray(item.path) else next(found, len(LONG))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector out of imports, which take a seventh longer with it, and later off what they made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


PROGRAMS = ("chromium", "exiftool", "exiv2", "ffmpeg", "WordNet")
"""What `.ci/debian` installs, as the reasons of tests that are skipped without it name it."""


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the last line how many tests were skipped for want of a program, and which command installs it."""
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:  # in a process of several that run tests
        return
    reasons = [report.longrepr[2].lower() for report in terminal.stats.get("skipped", [])]
    missing = [program for program in PROGRAMS if any(program.lower() in reason for reason in reasons)]
    n_tests = sum(any(program.lower() in reason for program in missing) for reason in reasons)
    if missing:
        terminal.write_line(
            f"{n_tests} tests were skipped because these are missing: {', '.join(missing)}. "
            "To install them on Debian, run as root: .ci/debian"
        )


CPU_BEFORE = pytest.StashKey[float]()


def cpu_seconds() -> float:
    """Return what this process has used so far, and its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note the processor's time that each phase of a test took: other work on the machine does not change it."""
    report, now = (yield), cpu_seconds()
    report.cpu = now - item.config.stash.get(CPU_BEFORE, now)
    item.config.stash[CPU_BEFORE] = now
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show which files took most of the processor's time, if `--durations` asks for a list."""
    seconds: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if hasattr(report, "cpu"):
            seconds[report.nodeid.partition("::")[0]] += report.cpu
    if n := terminalreporter.config.option.durations:
        terminalreporter.section(f"CPU seconds of all tests: {seconds.total():.0f}; of the costliest files")
        for file, taken in seconds.most_common(3 * n):
            terminalreporter.write_line(f"{taken:8.1f}  {file}")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and networks beside the repository; tests that want it are marked `shared`."""
    beside = Path(__file__).resolve().parents[1] / "shared"
    folder = Path(os.environ.get("VISTERM_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"wants the data beside the project, and there is no {folder}")
    return folder


@pytest.fixture(scope="session", autouse=True)
def built_commands() -> Iterator[None]:
    """Let Typer build the tree of commands once a process: it takes 0.3 s, and tests run hundreds of commands."""
    import typer.main
    import typer.testing

    with pytest.MonkeyPatch.context() as patch:
        built = cache(typer.main.get_command)
        patch.setattr(typer.main, "get_command", built)
        patch.setattr(typer.testing, "_get_command", built)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Let the tests' own process not wait until the disk has what it writes: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr("visterm.store.database.SYNCHRONOUS", "OFF")
        yield


@pytest.fixture(scope="session")
def small_library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A library of 200 pictures of a few shapes, shared by the tests that only read it."""
    from drawn_pictures import draw_library

    return draw_library(tmp_path_factory.mktemp("drawn") / "library", n_scenes=200, seed=5)


ENGINE = ExitStack()
"""What the Ray engine of this process' tests runs in; closing it ends the engine."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End the Ray engine after the files that use it, which come first: idle, it takes a thirtieth of a processor."""
    if not uses_ray(item.path):
        ENGINE.close()


@pytest.fixture(scope="session")
def held_engine() -> Iterator[ExitStack]:
    with ENGINE:
        yield ENGINE


@pytest.fixture(scope="session")
def ray_store() -> Iterator[str]:
    """The address of a local S3 server that the Ray engine's workers find in their environment."""
    from object_stores import running_server

    with running_server() as url:
        yield url


@pytest.fixture(scope="module")
def ray_engine(held_engine: ExitStack, ray_store: str) -> Iterator[Any]:
    """A Ray engine of two workers: one for all tests of this process, as starting one takes long."""
    from object_stores import named_server
    from visterm.cluster import load_ray, running_cluster

    if not load_ray().is_initialized():
        held_engine.close()
        with named_server(ray_store):
            held_engine.enter_context(running_cluster("local", 2))
    with running_cluster("local", 2) as reached:
        yield reached


@pytest.fixture
def no_ray_engine(held_engine: ExitStack) -> None:
    """No Ray engine runs: for tests that start machines of their own."""
    held_engine.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, started once a process.

    Its loop goes on in this thread, where no other can run then: `asyncio.run` starts a thread for its own.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("wants Debian's chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="wants playwright: pip install playwright")
    run = asyncio.run
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch, playwright.sync_playwright() as started:
        patch.setattr(asyncio, "run", lambda *task, **how: pool.submit(run, *task, **how).result())
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=600_000)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def artefacts() -> Path | None:
    """The folder for screenshots; without it none are taken: each costs a tenth of a second, and no test needs one."""
    if not (name := os.environ.get("VISTERM_ARTEFACTS")):
        return None
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def plugin() -> Iterator[None]:
    """Install the package of tests/plugin for a file's tests and what they start."""
    folder = str(Path(__file__).parent / "tests" / "plugin")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", folder, prepend=os.pathsep)
        yield
