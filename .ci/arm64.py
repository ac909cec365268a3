#!/usr/bin/env python3
"""Check that each dependency of visterm has a wheel for arm64 (aarch64), as most NAS and a Raspberry Pi need.

    .ci/arm64.py                    # what the wheel needs by itself
    .ci/arm64.py onnx raw           # with extras: those of the container

It asks the package index that pip is set up with, for each Python that visterm runs on, and installs nothing. The exit
code is 1 if a package has no wheel, and 0 if the index does not answer: then it says why nothing was checked.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in (36, 34, 31, 28, 27, 26, 17)] + ["manylinux2014_aarch64"]
SECONDS = 1200


def requirements(project: dict[str, object], extras: list[str]) -> list[str]:
    """Return what visterm needs with some extras."""
    listed = list(project["dependencies"])
    for extra in extras:
        listed += project["optional-dependencies"][extra]
    return listed


def wheels(python: str, listed: list[str], folder: Path) -> list[str]:
    """Return the names of the wheels that pip would install on arm64. Raises CalledProcessError if it cannot."""
    report = folder / f"{python}.json"
    platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
    target = ["--implementation", "cp", "--python-version", python, "--target", str(folder / "none"), *platforms]
    constraint = ["--constraint", str(ROOT / "constraints.txt"), "--report", str(report)]
    pip("--only-binary=:all:", *target, *constraint, *listed)
    return [item["download_info"]["url"].rpartition("/")[2] for item in json.loads(report.read_text())["install"]]


def pip(*arguments: str) -> None:
    """Ask pip what it would install. Raises CalledProcessError, with its error messages, if it finds no way."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", *arguments]
    subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)


def main() -> int:
    """Check all, and print a line for each Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [
        part.split(" :: ")[2]
        for part in project["classifiers"]
        if part.startswith("Programming Language :: Python :: 3.")
    ]
    listed = requirements(project, sys.argv[1:])
    try:
        pip("--no-deps", listed[0])
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"skipped: the package index does not answer: {error.stderr or error}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for python in pythons:
            try:
                result = wheels(python, listed, Path(folder))
            except subprocess.CalledProcessError as error:
                print(f"Python {python}: a wheel is missing: {error.stderr}")
                return 1
            compiled = sum("aarch64" in name for name in result)
            print(f"Python {python}: {len(result)} packages have wheels for arm64, {compiled} of them compiled ones")
    return 0


if __name__ == "__main__":
    sys.exit(main())
