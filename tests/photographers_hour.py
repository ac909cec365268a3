"""An hour of a photographer on the page, played by keys in a real browser, on photos whose names come from many places.

It begins with a folder, finds, gives 20 photos a new tag, resolves duplicates, reviews suggestions one by one and in
grids, learns again, sees what changed and goes back, writes tags for digiKam and undoes it. Each step is timed from the
key to what it shows, each answer of the server from the request to its end, and each page is searched for dead ends,
raw JSON and hashes.
"""

from __future__ import annotations

import csv
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import ExifTags, Image

from command_line import run_command
from drawn_pictures import draw_scene
from visterm import Catalogue

FOLDERS = (
    "2023/Übersee & Küste",
    "2024/日本 旅行/東京 夜",
    "2024/Familie Müller/Ausflug zum See",
    "2025/Čtvrtek",
    "alt",
)
STEMS = ("Foto {:04d} – Bäume", "写真_{:04d}", "IMG {:04d}", "DSC_{:04d} (Kopie)")
OWN_WORDS = {"snow": "Schnee", "sea": "海", "sun": "Sonne", "house": "Häuser", "tree": "Bäume"}
COPIES = "Handy/kleine Kopien"
TAGGED, KEPT = 0.6, 0.85  # Photos that people tagged, and the true tags of these that they gave
FIRST_DAY = datetime(2023, 4, 1, 9, 0)
WIDTHS = (1400, 820, 390)

HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{10,}\b")
RAW = re.compile(r"""[{\[]\s*["'][\w ]+["']\s*[:,]""")


def draw_photos(
    folder: Path, n_photos: int, n_copies: int, seed: int = 0, draw_scene: Callable[..., Any] = draw_scene
) -> tuple[Path, dict[str, set[str]]]:
    """Draw photos into nested folders, small copies of some, and a table of tags; return it, and what is true of each.

    A photo's name is its path below `folder`; tags are a person's own words, in several languages.
    """
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    names = [f"{rng.choice(FOLDERS)}/{rng.choice(STEMS).format(i)}.jpg" for i in range(n_photos)]
    for name in {*FOLDERS, COPIES}:
        (folder / name).mkdir(parents=True, exist_ok=True)

    def draw(i: int) -> set[str]:
        scene = draw_scene((seed, i))
        exif = Image.Exif()
        taken = FIRST_DAY + timedelta(hours=9.3 * i)
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = taken.strftime("%Y:%m:%d %H:%M:%S")
        exif[ExifTags.Base.Model] = "Gezeichnet 1"
        Image.fromarray(scene.image).save(folder / names[i], quality=90, exif=exif)
        return {OWN_WORDS.get(tag, tag) for tag in scene.tags}

    with ThreadPoolExecutor(2) as pool:
        truth = dict(zip(names, pool.map(draw, range(n_photos)), strict=True))
    for name in rng.sample(names, n_copies):
        copy = f"{COPIES}/{Path(name).name}"
        with Image.open(folder / name) as photo:
            photo.resize((photo.width * 3 // 4, photo.height * 3 // 4)).save(folder / copy, quality=80)
        truth[copy] = truth[name]
    table = folder.parent / "tags.csv"
    with open(table, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("file_name", "tags"))
        for name in names:
            given = [tag for tag in sorted(truth[name]) if rng.random() < KEPT]
            if given and rng.random() < TAGGED:
                writer.writerow((name, ";".join(given)))
    return table, truth


def make_library(
    folder: Path, n_photos: int, n_copies: int, fit: str, draw_scene: Callable[..., Any] = draw_scene
) -> tuple[Path, dict[int, set[str]]]:
    """Draw photos, learn their tags and index them by the commands; return the catalogue and what each photo shows."""
    table, truth = draw_photos(folder / "Meine Fotos", n_photos, n_copies, draw_scene=draw_scene)
    for command in (
        ["fit", "Meine Fotos", "--tags", table.name, "-o", "run", *fit.split()],
        ["index", "run", "Meine Fotos", "--tags", table.name, "-o", "catalogue"],
    ):
        done = run_command(command, folder)
        assert done.returncode == 0, done.stdout + done.stderr
    catalogue = Catalogue.load(folder / "catalogue", n_jobs=1)
    shown = {record.id: truth[record.name] for record in catalogue.records}
    catalogue.stored.close()
    return folder / "catalogue", shown


@contextmanager
def served_folder(
    folder: Path, n_photos: int, n_copies: int, draw_scene: Callable[..., Any] = draw_scene
) -> Iterator[tuple[str, dict[str, set[str]], float]]:
    """Draw photos with a table of tags among them, and run `visterm serve` on them.

    Yields its address, what is true of each photo, and when the command began, by `time.perf_counter`.
    """
    table, truth = draw_photos(folder / "Meine Fotos", n_photos, n_copies, draw_scene=draw_scene)
    table.rename(folder / "Meine Fotos" / "metadata.csv")
    command = [sys.executable, "-m", "visterm", "serve", "Meine Fotos", "-o", "catalogue", "--port", "0"]
    log, began = folder / "serve.log", time.perf_counter()
    with log.open("wb") as lines, subprocess.Popen(command, cwd=folder, stderr=lines) as service:
        try:
            while not (address := re.search(r"Serving .*? at (http://\S+) \(", log.read_text("utf-8", "replace"))):
                assert service.poll() is None, log.read_text("utf-8", "replace")
                time.sleep(0.05)
            yield address[1], truth, began
        finally:
            service.terminate()


def in_milliseconds(seconds: list[float]) -> dict[str, int]:
    """Return how many times there are, with their median, their 95th percentile and the longest."""
    median, p95, longest = (round(1000 * value) for value in np.quantile(seconds, (0.5, 0.95, 1.0)))
    return {"times": len(seconds), "median ms": median, "p95 ms": p95, "longest ms": longest}


class Hour:
    """What is done in the hour, how long each step and each answer took, and what a person would stumble over."""

    def __init__(self, window, truth: dict[int, set[str]], shots: Path | None = None) -> None:
        self.window, self.truth, self.shots = window, truth, shots
        self.page = window.page
        self.seconds: dict[str, list[float]] = {}
        self.answers: dict[str, list[float]] = {}  # The server's, by method and path with numbers as N
        self.page.on("requestfinished", self._note_answer)
        self.stumbles: list[str] = []
        self.said: dict[str, object] = {}

    def _note_answer(self, request: Any) -> None:
        timing, path = request.timing, urlsplit(request.url).path
        if timing["requestStart"] >= 0 and not path.startswith("/static/"):  # the browser kept no answer of its own
            seconds = (timing["responseEnd"] - timing["requestStart"]) / 1000
            self.answers.setdefault(f"{request.method} {re.sub('[0-9]+', 'N', path)}", []).append(seconds)

    def figures(self) -> dict[str, object]:
        """Return the times of all steps and answers, and what else was found."""
        pages = [seconds for kind, found in self.answers.items() if "/api/" not in kind for seconds in found]
        return {
            "steps": {name: in_milliseconds(found) for name, found in self.seconds.items()},
            "answers": {kind: in_milliseconds(found) for kind, found in sorted(self.answers.items())},
            "all answers of pages": in_milliseconds(pages), "stumbles": self.stumbles, **self.said,
        }  # fmt: skip

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, from its key to what it shows; then look at the page.

        Where pictures of the page are taken, all photos of the step before are there first: a person looks at them.
        """
        if self.shots is not None:
            self.page.wait_for_load_state("networkidle")
        began = time.perf_counter()
        yield
        self.seconds.setdefault(name, []).append(time.perf_counter() - began)
        text = self.page.inner_text("body")
        for kind, found in (("a hash", HASH.search(text)), ("raw JSON", RAW.search(text))):
            if found:
                self.stumbles.append(f"{name}: {kind}: {found[0]}")
        if not self.page.locator("main a, main button, main input").count():
            self.stumbles.append(f"{name}: a dead end at {self.page.url}")

    def shoot(self, name: str) -> None:
        """Take a picture of the page at three widths."""
        if self.shots is None:
            return
        size = self.page.viewport_size
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 860})
            self.page.wait_for_load_state("networkidle")
            self.page.screenshot(path=self.shots / f"{name}_{width}.png")
        self.page.set_viewport_size(size)

    def search(self, words: str, name: str) -> None:
        """Type words and wait for their photos."""
        self.window.press("/")
        self.page.fill("#q", words)
        with self.step(name):
            self.window.press("Enter")
            self.page.locator(f'#q[value="{words}"]').wait_for(state="attached")
            self.page.locator("#grid .hit img").first.wait_for()

    def start_job(self, name: str, press: Callable[[], object]) -> None:
        """Start a job, and time how soon the page shows it with its progress, or that it is done."""
        known = json.dumps(self.page.evaluate("[...document.querySelectorAll('.job')].map((job) => job.id)"))
        with self.step(f"start to {name}"):
            press()
            self.window.until(
                f"[...document.querySelectorAll('.job')].some((job) => !{known}.includes(job.id) "
                "&& (job.querySelector('progress') || job.matches('.done')))"
            )

    def begin(self, catalogue: Path, truth: Mapping[str, set[str]], began: float) -> None:
        """Open the page of a folder that is served for the first time, and search as soon as its tags are learned.

        `truth` is by names of photos; `began` is when the command was typed, by `time.perf_counter`.
        """
        self.window.open("/")
        self.page.locator("#grid .hit img").first.wait_for()
        self.said["seconds from the folder to the first photos"] = round(time.perf_counter() - began, 1)
        self.shoot("first_photos")
        self.page.locator("#start:has-text('are learned'), main:not(:has(#start))").first.wait_for()
        self.search("Schnee", "search one word")
        self.said["seconds from the folder to the first search"] = round(time.perf_counter() - began, 1)
        opened = Catalogue.load(catalogue, n_jobs=1)
        self.truth = {record.id: truth[record.name] for record in opened.records}
        opened.stored.close()

    def find(self) -> None:
        """Find photos by words, folder and date, open one, and walk on from it."""
        with self.step("open the page"):
            self.window.open("/")
            self.page.locator("#grid .hit img").first.wait_for()
        self.search("Schnee", "search one word")
        self.search("Schnee Häuser -Sonne", "search several words")
        self.shoot("search")
        with self.step("browse"):
            self.window.press("Escape", "g", "b")
            self.page.locator("h1", has_text="Browse").wait_for()
        self.shoot("browse")
        with self.step("a folder"):
            self.page.get_by_role("link", name=re.compile("^2024")).first.focus()
            self.window.press("Enter")
            self.page.locator("#grid .hit img").first.wait_for()
        with self.step("open a photo"):
            self.window.press("j", "Enter")
            self.page.locator("#picture-figure img").wait_for()
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
            with self.step("next or previous photo"):
                before = self.page.get_attribute("#picture-figure", "data-image")
                self.window.press(key)
                self.page.locator(f'#picture-figure:not([data-image="{before}"]) img').wait_for()
        self.shoot("photo")

    def correct_at_once(self, n_photos: int) -> None:
        """Choose the first photos of a search by keys, give all of them a tag, undo it, and do it again."""
        self.search("海", "search one word")
        self.window.press("Escape", "j", "x")
        self.window.press(*["Shift+ArrowRight"] * (n_photos - 1))
        assert self.page.inner_text("#n-chosen") == f"{n_photos} photos"
        self.shoot("chosen")
        for again in (True, False):
            self.window.press("a")
            self.page.fill("#chosen-tag", "Urlaub an der See")
            with self.step(f"tag {n_photos} photos"):
                self.window.press("Enter")
                self.page.locator("#undo-step").wait_for()
            if again:
                with self.step(f"undo the tag of {n_photos} photos"):
                    self.window.press("u")
                    self.page.locator("#undo-step").wait_for(state="detached")
        self.search("Urlaub an der See", "search the new tag")
        self.said["photos with the new tag"] = self.page.locator("#grid .hit", has_text="tagged by hand").count()

    def resolve_duplicates(self) -> None:
        """Look for duplicates, keep one photo of the first group, and the largest of all other groups."""
        self.window.open("/library")
        self.start_job("look for duplicates", self.page.get_by_role("button", name="Look for duplicates").click)
        self.page.locator(".job.done b", has_text="Look for duplicates").wait_for()
        with self.step("show duplicates"):
            self.page.locator(".job.done a", has_text="Show the duplicates").first.click()
            self.page.locator(".group-of").first.wait_for()
        self.said["groups of duplicates"] = int(re.sub(r"\D", "", self.page.inner_text("h1 small")))
        self.shoot("duplicates")
        with self.step("keep one of a group"):
            self.window.press("j", "y")
            self.page.locator(".group-of .step, .group-of button", has_text="Undo").first.wait_for()
        self.page.reload()
        self.page.locator("#group-all summary").click()
        with self.step("keep one of all groups"):
            self.page.locator("#group-all button.main").click()
            self.page.locator("#group-all button", has_text="Undo").wait_for()
        self.window.open("/duplicates")
        self.said["groups left"] = self.page.locator(".group-of").count()

    @contextmanager
    def _judging(self, name: str, answer: str) -> Iterator[Counter[str]]:
        """Count judgements and inputs, and add up how long they took here, and the server for these answers."""
        began, n_before = time.perf_counter(), len(self.answers.get(answer, ()))
        counts = Counter(judgements=0, inputs=0)
        yield counts
        seconds = sum(self.answers.get(answer, [])[n_before:])
        self.said |= {f"{what} {name}": n for what, n in counts.items()}
        self.said[f"seconds {name}"] = round(time.perf_counter() - began, 1)
        self.said[f"server ms a judgement {name}"] = round(1000 * seconds / max(1, counts["judgements"]), 1)

    def is_wrong(self, image: int, tag: str) -> bool:
        """Return whether a tag isn't true of a photo."""
        return tag not in self.truth[image]

    def review(self, is_wrong: Callable[[int, str], bool], n_answers: int, name: str = "one by one") -> None:
        """Answer questions by keys."""
        with self.step("open the review"):
            self.window.press("g", "r")
            self.page.locator(".answers [name=tag]").wait_for(state="attached")
        self.shoot("review")
        with self._judging(name, "POST /review") as counts:
            while counts["judgements"] < n_answers and self.page.locator(".answers [name=tag]").count():
                image, tag = (
                    int(self.page.input_value(".answers [name=image]")),
                    self.page.input_value(".answers [name=tag]"),
                )
                answered = int(self.page.inner_text("#answered"))
                with self.step("answer a question"):
                    self.window.press("n" if is_wrong(image, tag) else "y")
                    self.page.locator("#answered", has_text=re.compile(f"^{answered + 1}$")).wait_for()
                counts.update(judgements=1, inputs=1)

    def review_in_grids(self, is_wrong: Callable[[int, str], bool], n_photos: int, name: str = "in grids") -> None:
        """Judge screens of photos: mark the wrong ones by their keys, and accept the others by one more."""
        self.window.open("/review/grid")
        tiles = self.page.locator(".tile [name=wrong]")
        with self._judging(name, "POST /review/grid") as counts:
            while counts["judgements"] < n_photos and tiles.count():
                n_shown, tag = tiles.count(), self.page.input_value(".screen [name=tag]")
                self.window.until(f"document.querySelector('#n-right').textContent == '{n_shown}'")
                if not counts["judgements"]:
                    self.shoot("review_in_grids")
                photos = [(tile.get_attribute("data-key"), int(tile.get_attribute("value"))) for tile in tiles.all()]
                keys = [key for key, image in photos if is_wrong(image, tag)]
                self.window.press(*keys)
                counts.update(judgements=n_shown, inputs=len(keys) + 1)
                with self.step("answer a screen"):
                    self.window.press("y")
                    self.page.locator("#answered", has_text=re.compile(f"^{counts['judgements']}$")).wait_for()

    def compare_reviews(self, n_judgements: int = 300) -> None:
        """Judge in grids and one by one, where 5, 20 and 40 % are wrong, whatever the photos show."""
        for share in (0.05, 0.2, 0.4):

            def is_wrong(image: int, tag: str, share: float = share) -> bool:
                return random.Random(f"{image} {tag}").random() < share

            self.review_in_grids(is_wrong, n_judgements, f"in grids, {share:.0%} wrong")
            self.review(is_wrong, n_judgements, f"one by one, {share:.0%} wrong")

    def learn_and_go_back(self) -> None:
        """Learn again, look at what changed, go back, and look at the runs."""
        before = time.perf_counter()
        self.start_job("learn", lambda: self.window.press("l"))
        self.page.locator("#learned .comparison").wait_for()
        self.said["seconds to learn again"] = round(time.perf_counter() - before, 1)
        self.said["what changed"] = " ".join(self.page.inner_text("#learned .comparison").split())
        self.shoot("learned")
        back = self.page.locator("#learned summary", has_text="Go back")
        if back.count():  # the new run is in use
            back.focus()
            with self.step("ask to go back"):
                self.window.press("Enter")
                self.page.locator("#learned .confirm form button").wait_for()
            self.window.press("Tab", "Tab", "Enter")
            self.page.locator("#learned .job.done b", has_text="Go back").wait_for()
        with self.step("open the library"):
            self.window.press("g", "l")
            self.page.locator(".run.current").wait_for()
        self.said["run in use"] = self.page.inner_text(".run.current h3")
        self.shoot("library")

    def write_for_digikam(self) -> None:
        """Look at what would be written for digiKam, write it, and undo that."""
        with self.step("open the page that writes"):
            self.page.locator("a", has_text="Write tags").focus()
            self.window.press("Enter")
            self.page.locator("select[name=to]").wait_for()
        self.page.locator("select[name=to]").select_option("digikam")
        for name, button, done in (
            ("show what would be written", "Show what would be written", "Would add "),
            ("write it", "Write these tags", "In digiKam, switch on"),
            ("undo what was written", "Undo: remove", "Removed "),
        ):
            self.start_job(name, self.page.locator("button", has_text=button).click)
            self.said[name] = self.page.locator(".job.done .message", has_text=done).inner_text()
            self.shoot(name.replace(" ", "_"))

    def play(self, n_chosen: int = 20, n_answers: int = 100, n_in_grids: int = 200) -> None:
        """Play the hour: 300 judgements, if nothing else is said."""
        self.find()
        self.correct_at_once(n_chosen)
        self.resolve_duplicates()
        self.review(self.is_wrong, n_answers)
        self.review_in_grids(self.is_wrong, n_in_grids)
        self.learn_and_go_back()
        self.write_for_digikam()
