"""Try the Dockerfile without Docker: its steps in Debian's own root, then the image as it is meant to run.

    sudo python3 deploy/try_image.py                 # some minutes; needs debootstrap and 5 GB under --work
    sudo python3 deploy/try_image.py --json OUT.json # the figures as a file, too

Each instruction of deploy/Dockerfile is read and done here: RUN in a chroot, COPY, ENV, USER and the others by their
meaning. Then the image runs as its user without any capability, with a read-only root, an empty /tmp in memory, /data
as the only folder to write, and no network but its own loopback: fit and index make a catalogue of drawn photos, CMD
serves it, and HEALTHCHECK's command is asked until it passes. What this cannot show: that Docker itself takes the file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
TOKEN = "a-token-only-for-this-try"
OTHER_USER = "1234:1234"  # As compose files run it: whoever owns the folder
PATIENCE = 600  # Seconds until the health check must have passed
BUILD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


KEY = """
from pathlib import Path
from visterm.connectors.keys import read_key
from visterm.core.errors import UserError
for path in ("/run/secrets/visterm_token", "/run/secrets/open"):
    try:
        read_key(Path(path), "NO_VARIABLE")
        print("accepted")
    except UserError as error:
        print("refused:", error)
"""
PLACES = """
from huggingface_hub import constants
from typer import get_app_dir
print(constants.HF_HUB_CACHE, get_app_dir("visterm"))
"""
"""Where networks go, and what this user has said: which servers a key may be sent to."""
PHOTOS = """
import random
from pathlib import Path
from PIL import Image, ImageDraw
colours = {"tree": (40, 120, 50), "sea": (40, 80, 160), "sun": (240, 200, 60), "snow": (235, 235, 245)}
folder = Path("/data/photos")
folder.mkdir()
lines = ["file_name,tags"]
for number in range(200):
    tags = random.Random(number).sample(list(colours), 2)
    photo = Image.new("RGB", (160, 120), (120, 180, 235))
    for place, tag in enumerate(tags):
        ImageDraw.Draw(photo).ellipse((10 + 75 * place, 20, 70 + 75 * place, 110), fill=colours[tag])
    photo.save(folder / f"{number:03}.jpg")
    lines.append(f"{number:03}.jpg,{';'.join(tags)}")
Path("/data/tags.csv").write_text("\n".join(lines))
"""
"""Draw photos of two shapes each, in the colours of their tags."""


class Instruction(NamedTuple):
    """One line of a Dockerfile: its word, the words before its arguments that begin with ``--``, and the rest."""

    word: str
    flags: dict[str, str]
    rest: str


class Image:
    """What a stage of a Dockerfile has set up so far: its root folder, environment, and how it is started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {"PATH": BUILD_PATH}
        self.args: dict[str, str] = {}
        self.user, self.folder = "0:0", "/"
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self.health: list[str] = []


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, comments left out and lines that end in a backslash joined."""
    text = re.sub(r"^[ \t]*#.*\n", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.strip().partition(" ")
        flags = {}
        while found := re.match(r"\s*--([\w-]+)=(\S+)\s", rest):
            flags[found[1]] = found[2]
            rest = rest[found.end() :]
        yield Instruction(word.upper(), flags, rest.strip())


def build(work: Path, mirror: str) -> tuple[Image, list[dict[str, Any]]]:
    """Do the instructions in roots under `work`; return the last stage, and what each instruction took."""
    stages: dict[str, Image] = {}
    took = []
    image: Image | None = None
    for number, (word, flags, rest) in enumerate(instructions(DOCKERFILE.read_text(encoding="utf-8"))):
        began = time.monotonic()
        say(f"{word} {rest}")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            image = stages[name or str(number)] = Image(work / f"stage-{name or 'image'}")
            _from(base, image.root, work, mirror)
        elif image is None:
            raise SystemExit(f"{word} stands before FROM.")
        elif word == "RUN":
            env = {**image.args, **image.env}
            in_chroot(image.root, ["/bin/sh", "-c", rest], env, certificates=os.environ.get("SSL_CERT_FILE"))
        elif word == "COPY":
            source = stages[flags["from"]].root if "from" in flags else None
            _copy(rest.split(), image.root, source)
        elif word == "ENV":
            image.env |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif word == "ARG":
            name, _, value = rest.partition("=")
            image.args[name] = value.strip("\"'")
        elif word == "USER":
            image.user = rest
        elif word == "WORKDIR":
            image.folder = rest
        elif word == "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        elif word == "CMD":
            image.command = json.loads(rest)
        elif word == "HEALTHCHECK":
            image.health = json.loads(rest.partition("CMD ")[2])
        elif word not in ("VOLUME", "EXPOSE"):
            raise SystemExit(f"{word} is not known to this program.")
        took.append({"step": f"{word} {rest}"[:100], "seconds": round(time.monotonic() - began, 1)})
    if image is None:
        raise SystemExit("The Dockerfile has no FROM.")
    return image, took


def _from(base: str, root: Path, work: Path, mirror: str) -> None:
    """Copy Debian's smallest root of a release, made once, into `root`; the base image is made the same way."""
    found = re.fullmatch(r"debian:(\w+)-slim", base)
    if found is None:
        raise SystemExit(f"{base} cannot be tried here; expected debian:RELEASE-slim.")
    made = work / found[1]
    if not (made / "etc/debian_version").exists():
        subprocess.run(["debootstrap", "--variant=minbase", found[1], made, mirror], check=True, stdout=sys.stderr)
        for folder in ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists"):
            for path in (made / folder).iterdir():  # as debian:*-slim leaves them out
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(made / "var/cache/apt", ignore_errors=True)
        (made / "etc/dpkg/dpkg.cfg.d/slim").write_text(
            "".join(f"path-exclude /usr/share/{name}/*\n" for name in ("doc", "man", "locale"))
        )
    if root.exists():
        shutil.rmtree(root)
    subprocess.run(["cp", "--archive", made, root], check=True)


def _copy(words: Sequence[str], root: Path, source: Path | None) -> None:
    """Copy files and folders into a stage, from another one or from what the build may read of the repository."""
    *names, target = words
    place = root / target.lstrip("/")
    for name in names:
        found = (source or ROOT) / name.lstrip("/")
        if source is None and ignored(name):
            raise SystemExit(f"{name} is left out by Dockerfile.dockerignore.")
        into = place if found.is_dir() else place / found.name if target.endswith("/") else place
        into.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            skip = None if source else shutil.ignore_patterns("__pycache__")
            shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True, ignore=skip)
        else:
            shutil.copy2(found, into)


def ignored(name: str) -> bool:
    """Return whether the build is kept from a file or folder at the top of the repository."""
    left_out = False
    for line in (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#") and fnmatch(name, line.lstrip("!")):
            left_out = not line.startswith("!")
    return left_out


def in_chroot(root: Path, command: Sequence[str], env: dict[str, str], certificates: str | None = None) -> None:
    """Run a step of the build as root, with this machine's network; `certificates` are those that it trusts here."""
    script = (
        'root=$1; certificates=$2; shift 2; mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; '
        'mount -t tmpfs tmpfs "$root/run"; cp /etc/resolv.conf "$root/run/resolv.conf"; '
        'touch "$root/etc/resolv.conf"; mount --bind "$root/run/resolv.conf" "$root/etc/resolv.conf"; '
        'if [ -n "$certificates" ]; then cp "$certificates" "$root/run/certificates.pem"; fi; exec chroot "$root" "$@"'
    )
    env = {**env, "DEBIAN_FRONTEND": "noninteractive"}
    if certificates:
        env |= {"SSL_CERT_FILE": "/run/certificates.pem", "PIP_CERT": "/run/certificates.pem"}
    unshared = ["unshare", "--mount", "--pid", "--fork", "bash", "-euc", script, "bash", str(root), certificates or ""]
    subprocess.run([*unshared, *command], check=True, env=env, stdout=sys.stderr)


def try_image(image: Image, user: str, work: Path) -> dict[str, Any]:
    """Run the image as it is meant to run, in namespaces of its own, and return what was seen."""
    uid, gid = map(int, user.split(":"))
    data, secrets = work / "data", work / "secrets"
    for folder, owner in ((data, (uid, gid)), (secrets, (0, 0))):
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        os.chown(folder, *owner)
    for name, mode in (("visterm_token", 0o600), ("open", 0o644)):
        secret = secrets / name
        secret.write_text(TOKEN, encoding="ascii")
        os.chown(secret, uid, gid)
        secret.chmod(mode)
    settings = {**vars(image), "root": str(image.root), "user": user, "data": str(data), "secrets": str(secrets)}
    unshared = ["unshare", "--mount", "--pid", "--net", "--fork", sys.executable, __file__, "--inside"]
    done = subprocess.run([*unshared, json.dumps(settings)], check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def inside(settings: dict[str, Any]) -> dict[str, Any]:
    """Set up what a container has, run the image in it, and return what was seen."""
    root = settings["root"]
    for words in (
        ["ip", "link", "set", "lo", "up"],
        ["mount", "--make-rprivate", "/"],
        ["mount", "--bind", root, root],
        ["mount", "-o", "remount,bind,ro", root],
        ["mount", "-t", "proc", "proc", f"{root}/proc"],
        ["mount", "--rbind", "/dev", f"{root}/dev"],
        ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{root}/tmp"],
        ["mount", "-t", "tmpfs", "tmpfs", f"{root}/run"],
        ["mkdir", f"{root}/run/secrets"],
        ["mount", "--bind", settings["secrets"], f"{root}/run/secrets"],
        ["mount", "--bind", settings["data"], f"{root}/data"],
    ):
        subprocess.run(words, check=True)
    uid, gid = settings["user"].split(":")
    contained = [
        "chroot", root, "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs",
        "--inh-caps=-all", "--bounding-set=-all", "env", f"--chdir={settings['folder']}",
    ]  # fmt: skip

    def run(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*contained, *words], env=settings["env"], text=True, check=False, **options)

    visterm = settings["entrypoint"]
    seen: dict[str, Any] = {"user": run(["id"], capture_output=True).stdout.strip()}
    for place in ("/", "/opt/visterm", "/etc", "/data", "/tmp"):
        written = run(["touch", f"{place}/written"], capture_output=True)
        seen.setdefault("can write", {})[place] = written.returncode == 0
    key = run(["python", "-c", KEY], capture_output=True)
    seen["key file of mode 600, and of mode 644"] = key.stdout.split("\n")[:2]
    seen["places"] = run(["python", "-c", PLACES], capture_output=True).stdout.split()
    began = time.monotonic()
    for words in (
        ["python", "-c", PHOTOS],
        [*visterm, "fit", "/data/photos", "--tags", "/data/tags.csv", "-o", "/data/run"],
        [*visterm, "index", "/data/run", "/data/photos", "-o", "/data/catalogue"],
    ):
        if (code := run(words, stdout=sys.stderr).returncode) != 0:
            raise SystemExit(f"{shlex.join(words)[:80]} ended with {code}.")
    seen["seconds to learn and index 200 photos, compiling included"] = round(time.monotonic() - began, 1)
    seen["first start"] = _served(settings, contained, run)
    seen["second start"] = _served(settings, contained, run)
    shutil.rmtree(f"{settings['data']}/.cache/numba")
    seen["start with nothing compiled"] = _served(settings, contained, run)
    seen["written into /data"] = sorted(os.listdir(settings["data"]) + os.listdir(f"{settings['data']}/.cache"))
    return seen


def _served(settings: dict[str, Any], contained: Sequence[str], run: Callable[..., Any]) -> dict[str, Any]:
    """Start CMD, ask HEALTHCHECK's command until it passes, search once by the API, end it as Docker does."""
    ask = (
        "import sys, urllib.request as r; q = r.Request('http://127.0.0.1:8080/api/v1/search?q=tree', "
        "headers={'authorization': 'Bearer ' + sys.argv[1]}); print(r.urlopen(q, timeout=120).status)"
    )
    began = time.monotonic()
    service = subprocess.Popen([*contained, *settings["entrypoint"], *settings["command"]], env=settings["env"],
                               stdout=sys.stderr)  # fmt: skip
    while run(settings["health"], capture_output=True).returncode != 0:
        if service.poll() is not None or time.monotonic() - began > PATIENCE:
            raise SystemExit(f"The health check does not pass; the service's exit code is {service.poll()}.")
        time.sleep(0.5)
    healthy = time.monotonic() - began
    found = run(["python", "-c", ask, TOKEN], capture_output=True)
    searched = time.monotonic() - began - healthy
    refused = run(["python", "-c", ask, "another token"], capture_output=True)
    service.terminate()
    code = service.wait(60)
    return {
        "seconds until healthy": round(healthy, 1),
        "seconds of the first search": round(searched, 1),
        "answer to a search": found.stdout.strip(),
        "without the token": "401" if "401" in refused.stderr else refused.stderr[-200:],
        "exit code after SIGTERM": code,
        "health check after the end": run(settings["health"], capture_output=True).returncode,
    }


def megabytes(folder: Path) -> int:
    """Return what a folder takes on disk."""
    return int(subprocess.run(["du", "-sm", folder], check=True, capture_output=True, text=True).stdout.split()[0])


def say(line: str) -> None:
    """Tell people how far this is."""
    print(f"=== {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Build and try, and print what was seen as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="a folder to keep: the next try needs no debootstrap again")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    parser.add_argument("--json", type=Path, help="a file for what was seen")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(inside(json.loads(options.inside))))
        return
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise SystemExit("This needs root and debootstrap: apt-get install debootstrap")
    with tempfile.TemporaryDirectory(prefix="visterm-image-") as temporary:
        work = (options.work or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        image, steps = build(work, options.mirror)
        sizes = {"root": megabytes(image.root), "of it /opt/visterm": megabytes(image.root / "opt/visterm")}
        seen = {"load before": os.getloadavg()[0], "cores": os.cpu_count(), "steps": steps, "megabytes": sizes}
        seen |= {f"as user {user}": try_image(image, user, work) for user in (image.user, OTHER_USER)}
    text = json.dumps(seen, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
