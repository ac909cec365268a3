"""Kills (SIGKILL) between what people say and what is learned from it, by seed: nothing acknowledged is ever lost.

People speak through the service (HTTP) and through `visterm tag`, one thing after the other, while the service or
`visterm fit` learns, or `visterm use` goes back. Any of these processes is killed at a random moment.
After each kill the catalogue is sound and holds all that was acknowledged. After each seed it learns in peace, from all
of that, and goes back step by step to its first run: what was said is still there.

    python tests/feedback_kills.py --seeds 50 --json kills.json
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from command_line import run_command
from tiny_catalogues import COLOURS, draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.library.training import is_held_out

N_PHOTOS = 48
N_LEARNED = 4  # Runs that the catalogue learned before anything is killed
LONGEST = 600.0  # Seconds that anything may take on a busy machine before something is wrong
PAUSE = 0.01  # Seconds between two things that a person says
OPS = {"give": "give", "take": "take", "accept": 1, "reject": -1}
OPTIONS = {"give": "add", "accept": "add", "take": "remove", "reject": "remove"}
SPEAKERS = ("service", "command")
KINDS = (
    "the service", "the service while it learns", "a job that learns", "a job that goes back", "visterm tag",
    "visterm fit", "visterm use",
)  # fmt: skip
WORK = {"visterm fit": "fit", "visterm use": "go-back"}  # The others take as long as a job
PRELOADED = [
    "feedback_kills", "visterm.web.app", "visterm.cli.tag", "visterm.cli.fit", "uvicorn",
    "visterm.library.learn", "visterm.models.ranking.wsabie", "visterm.encoders.visterms", "visterm.encoders.blocks",
    "visterm.learning.calibrating", "visterm.metrics.report", "sklearn.base", "pi_heif",
]  # fmt: skip
"""What a process would else import first: seconds on a busy machine."""


def serve(folder: str, port: int) -> None:
    """Serve a catalogue until this process is killed."""
    import uvicorn

    from visterm.web.app import create_app

    os.setpgid(0, 0)
    uvicorn.run(create_app(Path(folder)), port=port, log_level="error", ws="none")


def command(line: list[str]) -> None:
    """Run one command of visterm."""
    done = run_command(line)
    if done.returncode:
        print(" ".join(line), done.stderr, file=sys.stderr)
    sys.exit(done.returncode)


def correct(folder: str, seed: int, told: Any) -> None:
    """Say one thing after the other by commands, and tell before and after each what it is."""
    for image, tag, op in things_to_say("command", random.Random(seed)):
        told.send((image, tag, op, False))
        done = run_command(["tag", folder, f"{image:03d}.png", f"--{OPTIONS[op]}", tag])
        assert done.returncode == 0, done.stderr
        told.send((image, tag, op, True))


def things_to_say(speaker: str, rng: random.Random) -> Iterator[tuple[int, str, str]]:
    """Yield images, tags and what is said of them, for ever; tags are the speaker's own, new ones and known ones."""
    known = list(COLOURS)[: len(COLOURS) // 2] if speaker == "service" else list(COLOURS)[len(COLOURS) // 2 :]
    tags = [*known, *(f"{speaker} {number}" for number in range(6))]
    while True:
        yield rng.randrange(N_PHOTOS), rng.choice(tags), rng.choice(list(OPS))


class Server(NamedTuple):
    """A service in a process of its own."""

    process: Any
    port: int


class Said:
    """What was said of each image and tag: the last that was acknowledged, and what came after it without an answer."""

    def __init__(self) -> None:
        self.possible: dict[tuple[int, str], list[str]] = {}
        self.log: dict[int, tuple[int, str, int]] = {}  # Entries of the log that the service named
        self.acknowledged = 0
        self.refused: list[Any] = []  # Answers that the service may not give

    def begin(self, image: int, tag: str, op: str) -> None:
        """Note that something is being said."""
        self.possible.setdefault((image, tag), ["nothing"]).append(op)

    def end(self, image: int, tag: str, op: str) -> None:
        """Note that it was acknowledged."""
        self.possible[image, tag] = [op]
        self.acknowledged += 1

    def check(self, catalogue: Catalogue, first: dict[int, list[str]]) -> None:
        """Check that a catalogue holds it; `first` are the tags of each image before anything was said."""
        assert not self.refused, f"refused: {self.refused}"
        for (image, tag), ops in self.possible.items():
            view = catalogue.image(image)
            has, verdict = tag in view.tags, view.verdicts.get(tag)
            holds = {
                "give": has, "take": not has, "accept": has and verdict == 1, "reject": not has and verdict == -1,
                "nothing": has == (tag in first[image]) and verdict is None,
            }  # fmt: skip
            assert any(holds[op] for op in ops), f"image {image}, {tag!r}: {ops} was said, but {has}, {verdict} is kept"
        kept = {entry.id: (entry.image_id, entry.tag, entry.verdict) for entry in _log(catalogue)}
        assert self.log.items() <= kept.items(), "an acknowledged entry of the log is lost"


class Kills:
    """A catalogue that has learned some runs, and how long calm work at it takes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kills: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.acknowledged = 0
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(PRELOADED)
        tags = draw_photos(folder / "photos", N_PHOTOS)
        run = fit_run(folder / "photos", tags, folder / "run")
        made = Catalogue.create(folder / "made", Tagger.load(run, n_jobs=1))
        made.index(folder / "photos", tags=write_tags(folder / "tags.csv", tags))
        for number in range(N_LEARNED):
            made.give(0, [f"word {number}"])
            made.learn(full=True)
        self.first = {image: made.image(image).tags for image in range(N_PHOTOS)}
        made.stored.close()
        shutil.copytree(folder / "made", folder / "calm")
        calm = str(folder / "calm")
        self._run("info", calm)  # starts the server of processes
        self.seconds = {"fit": self._timed("fit", calm, "--full"), "go-back": self._timed("use", "--back", calm)}
        began = time.monotonic()
        job = [sys.executable, "-m", "visterm.web.job_process", calm, "1", "fit", "full"]
        with subprocess.Popen(job, stdin=subprocess.PIPE) as process:  # it ends when this pipe does
            assert process.wait(LONGEST) == 0
        self.seconds["job"] = time.monotonic() - began

    def seed(self, seed: int) -> None:
        """Kill by a seed, and check what came of it. Raises AssertionError."""
        rng, place = random.Random(seed), self.folder / f"seed{seed}"
        shutil.copytree(self.folder / "made", place)
        said = {speaker: Said() for speaker in SPEAKERS}
        for _ in range(rng.randrange(1, 4)):
            kind = rng.choice(KINDS)
            self._round(place, rng, kind, said)
            self._check(place, said)
        self._end_in_peace(place, said)
        self.acknowledged += sum(one.acknowledged for one in said.values())
        shutil.rmtree(place)

    def _round(self, place: Path, rng: random.Random, kind: str, said: dict[str, Said]) -> None:
        """Let people speak and the catalogue learn or go back, and kill one of the processes, then all others."""
        seconds = rng.uniform(0.0, self.seconds[WORK.get(kind, "job")])
        full = ["--full"] * rng.randrange(2)
        with contextlib.ExitStack() as ending:
            server = ending.enter_context(self._served(place))
            stop = threading.Event()
            person = threading.Thread(target=_speak, args=(server.port, rng.randrange(10**6), said["service"], stop))
            told, tell = self._processes.Pipe(duplex=False)
            commands = self._started(correct, str(place), rng.randrange(10**6), tell)
            tell.close()
            listener = threading.Thread(target=_listen, args=(told, said["command"]))
            for thread in (person, listener):
                thread.start()
            victim: int | None = server.process.pid
            time.sleep(rng.uniform(0.0, 0.5))  # people begin
            work = None
            if kind.startswith("visterm fit"):
                work = self._started(command, ["fit", str(place), *full])
            elif kind == "visterm use":
                work = self._started(command, ["use", "--back", str(place)])
            elif kind == "visterm tag":
                victim = commands.pid
            elif kind != "the service":
                job = {"kind": "go back"} if "back" in kind else {"kind": "fit", "full": bool(full)}
                status, answer = _ask(server.port, "/jobs", job)
                assert status == 202, answer
            if kind.startswith("a job"):
                victim = _job_process(server.process.pid)
            if work is not None:
                victim = work.pid
            time.sleep(seconds)
            self._kill(victim, kind)
            if work is not None:
                work.join(LONGEST)
                self.ended[f"{kind}: {'killed' if work.exitcode == -signal.SIGKILL else work.exitcode}"] += 1
            time.sleep(rng.uniform(0.0, 0.3))  # people go on
            stop.set()
            commands.kill()
            commands.join(LONGEST)
            assert commands.exitcode == -signal.SIGKILL, f"visterm tag ended with {commands.exitcode}"
            for thread in (person, listener):
                thread.join(LONGEST)

    def _kill(self, victim: int | None, kind: str) -> None:
        try:
            assert victim is not None
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            self.kills[f"{kind}: had ended"] += 1
        else:
            self.kills[kind] += 1

    def _check(self, place: Path, said: dict[str, Said]) -> None:
        """Check that a catalogue is sound and holds what was said."""
        catalogue = Catalogue.load(place, n_jobs=1)
        assert catalogue.stored.database.check() == []
        for one in said.values():
            one.check(catalogue, self.first)
        assert catalogue.tagger.fingerprint == catalogue.stored.origin.fingerprint
        assert len(catalogue) == N_PHOTOS
        assert all(catalogue.image(image).predicted for image in range(N_PHOTOS))
        catalogue.stored.jobs.mark_lost()
        assert all(job.ended for job in catalogue.stored.jobs.latest(1000))
        catalogue.stored.close()

    def _end_in_peace(self, place: Path, said: dict[str, Said]) -> None:
        """Learn from all that was said, and go back step by step to the first run: it is all still there."""
        catalogue = Catalogue.load(place, n_jobs=1)
        catalogue.learn(full=True, use_even_if_worse=True)
        held = catalogue.stored.tags.held()
        learned = {tag for record in catalogue.records if not is_held_out(record) for tag in held.get(record.id, ())}
        assert learned <= set(catalogue.tagger.vocabulary.tags)
        before = [catalogue.image(image).as_dict() for image in range(N_PHOTOS)]
        while catalogue.earlier_runs():
            expected = catalogue.earlier_runs()[0].run.id
            self._run("use", "--back", str(place))
            current = catalogue.stored.runs.current()
            assert current is not None
            assert current.id == expected
            self._check(place, said)
        for image, view in enumerate(before):
            now = catalogue.image(image).as_dict()
            assert all(now[name] == view[name] for name in ("image", "tags", "given", "verdicts"))
        catalogue.stored.close()

    @contextmanager
    def _served(self, place: Path) -> Iterator[Server]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        process = self._started(serve, str(place), port)
        until = time.monotonic() + LONGEST
        while True:
            assert process.is_alive(), "the service did not start"
            assert time.monotonic() < until, "the service does not answer"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        try:
            yield Server(process, port)
        finally:
            process.kill()
            process.join(LONGEST)

    def _started(self, work: Any, *arguments: Any) -> Any:
        process = self._processes.Process(target=work, args=arguments, daemon=True)
        process.start()
        return process

    def _timed(self, *line: str) -> float:
        """Run a command to its end, and return its seconds."""
        began = time.monotonic()
        self._run(*line)
        return time.monotonic() - began

    def _run(self, *line: str) -> None:
        """Run a command to its end."""
        process = self._started(command, list(line))
        process.join(LONGEST)
        assert process.exitcode == 0, f"visterm {' '.join(line)} ended with {process.exitcode}"


def _speak(port: int, seed: int, said: Said, stop: threading.Event) -> None:
    """Say one thing after the other to the service, until it is gone or told to stop."""
    for image, tag, op in things_to_say("service", random.Random(seed)):
        if stop.wait(PAUSE):
            return
        said.begin(image, tag, op)
        what = OPS[op]
        if isinstance(what, int):
            status, answer = _ask(port, f"/images/{image}/feedback", {"tag": tag, "verdict": what})
        else:
            status, answer = _ask(port, f"/images/{image}/tags", {what: [tag]})
        if status == 0:
            return
        if status != 200:
            said.refused.append(answer)
            return
        said.end(image, tag, op)
        if isinstance(what, int):
            said.log[answer["id"]] = (answer["image_id"], answer["tag"], answer["verdict"])


def _listen(told: Any, said: Said) -> None:
    """Note what the commands were told is done, until they are killed; half a message is none."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            image, tag, op, is_done = told.recv()
            (said.end if is_done else said.begin)(image, tag, op)


def _ask(port: int, path: str, content: dict[str, Any]) -> tuple[int, Any]:
    """Send one request, and return the status and the answer; the status is 0 if none came."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST)
    try:
        connection.request("POST", f"/api/v1{path}", json.dumps(content), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return 0, None
    finally:
        connection.close()


def _job_process(service: int) -> int | None:
    """Return the process that runs the job of a service, as soon as there is one; None if it has ended already."""
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == service and b"visterm.web.job_process" in (place / "cmdline").read_bytes():
                    return int(place.name)
        time.sleep(0.01)
    return None


def _log(catalogue: Catalogue) -> Iterator[Any]:
    last = 0
    while found := catalogue.stored.tags.feedback(after=last, limit=10_000):
        yield from found
        last = found[-1].id


def main() -> None:
    """Kill by many seeds, and say what was killed how often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    began, failed = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        kills = Kills(Path(folder))
        for seed in range(chosen.seeds):
            try:
                kills.seed(seed)
            except AssertionError as error:
                failed[seed] = str(error)[:500]
            print(seed, dict(kills.kills), kills.acknowledged, failed, flush=True)
        figures = {
            "seeds": chosen.seeds, "kills": dict(sorted(kills.kills.items())), "acknowledged": kills.acknowledged,
            "commands": dict(sorted(kills.ended.items())), "failed": failed, "seconds": time.monotonic() - began,
        }  # fmt: skip
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
