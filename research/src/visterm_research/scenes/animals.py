"""Four-legged animals: one painter, and a table of builds from cat to elephant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from visterm_research.scenes.canvas import RGB, Sketch, arc, shade, vary
from visterm_research.scenes.materials import Material


@dataclass(frozen=True, slots=True)
class Build:
    """How an animal is built; lengths are in units of its height at the shoulder, about 1."""

    colours: tuple[RGB, ...]  # One is drawn for each animal
    # Of the body (half-length and half-height), and of the legs
    length: float = 0.62
    girth: float = 0.24
    legs: float = 0.5
    leg_width: float = 0.1
    neck: tuple[float, float] = (0.2, 0.2)  # How far forward and up the head is from the shoulder
    # Sizes of neck, head (radius) and muzzle (length)
    neck_width: float = 0.2
    head: float = 0.17
    muzzle: float = 0.14
    ears: str = "pointed"  # "pointed", "round", "hanging", "long" or "large"
    tail: str = "long"  # "long", "bushy", "tuft", "curl" or "short"
    extras: tuple[str, ...] = ()
    """Any of "mane", "horn", "hump", "trunk", "tusk", "patches", "spots", "whiskers", "udder", "snout", "antlers",
    "dark head", "white tip"."""
    material: Material = Material.FUR  # Of the coat


BUILDS: dict[str, Build] = {
    "dog": Build(
        ((140, 92, 54), (206, 164, 110), (64, 56, 52), (226, 214, 196)),
        0.52, 0.2, 0.42, 0.11, (0.14, 0.24), 0.2, 0.19, 0.17,
        "hanging", "long",
    ),
    "cat": Build(
        ((96, 92, 92), (214, 136, 62), (44, 42, 46), (230, 222, 210)),
        0.46, 0.19, 0.34, 0.09, (0.08, 0.22), 0.16, 0.2, 0.05,
        "pointed", "curl", ("whiskers",),
    ),
    "fox": Build(
        ((206, 98, 38),), 0.54, 0.18, 0.36, 0.08, (0.14, 0.14), 0.16, 0.17, 0.18, "pointed", "bushy", ("white tip",)
    ),
    "cow": Build(
        ((236, 232, 226), (150, 88, 52)), 0.74, 0.3, 0.42, 0.12, (0.16, 0.1), 0.26, 0.19, 0.18, "round", "tuft",
        ("patches", "horn", "udder"), Material.SKIN,
    ),
    "horse": Build(
        ((118, 68, 38), (74, 52, 42), (222, 212, 196), (160, 100, 54)),
        0.62, 0.22, 0.58, 0.09, (0.3, 0.42), 0.22, 0.14, 0.26,
        "pointed", "bushy", ("mane",), Material.SKIN,
    ),
    "sheep": Build(
        ((236, 230, 216),), 0.52, 0.3, 0.3, 0.09, (0.06, 0.1), 0.18, 0.16, 0.12, "round", "short", ("dark head",),
        Material.WOOL,
    ),
    "pig": Build(
        ((234, 164, 158),), 0.62, 0.29, 0.24, 0.12, (0.06, 0.03), 0.28, 0.22, 0.14, "pointed", "curl", ("snout",),
        Material.SKIN,
    ),
    "elephant": Build(
        ((132, 128, 130), (150, 138, 130)), 0.66, 0.36, 0.44, 0.2, (0.16, 0.1), 0.34, 0.27, 0.0, "large", "tuft",
        ("trunk", "tusk"), Material.ROCK,
    ),
    "camel": Build(
        ((196, 150, 92),), 0.58, 0.22, 0.6, 0.1, (0.36, 0.34), 0.14, 0.13, 0.18, "round", "tuft", ("hump",)
    ),
    "giraffe": Build(
        ((226, 182, 98),), 0.44, 0.19, 0.66, 0.09, (0.3, 0.92), 0.15, 0.11, 0.2, "round", "tuft", ("spots", "horn"),
        Material.SKIN,
    ),
    "deer": Build(
        ((168, 112, 66),),
        0.5, 0.18, 0.52, 0.07, (0.2, 0.32), 0.14, 0.13, 0.15, "long", "short", ("antlers", "white tip"),
    ),
    "rabbit": Build(
        ((168, 146, 124), (232, 226, 218)),
        0.42, 0.27, 0.16, 0.12, (0.06, 0.14), 0.18, 0.2, 0.05, "long", "short", ("whiskers",)
    ),
}  # fmt: skip


def quadruped(s: Sketch, *, build: Build) -> None:
    """Draw a four-legged animal that looks to the right."""
    rng = s.rng
    coat = vary(rng, rng.choice(build.colours), 10)
    dark, material = shade(coat, 0.72), build.material
    half, girth = build.length, build.girth
    middle = build.legs + girth * 0.9
    back, front = -half * 0.78, half * 0.78
    s.shadow(0, half * 1.15, 0.05)
    _tail(s, build, coat, -half * 0.95, middle + girth * 0.4)
    stride = rng.uniform(-0.08, 0.08)
    for x, tone in ((back + 0.16, dark), (front - 0.14, dark), (back, coat), (front, coat)):
        _leg(s.part("leg"), x, x + (stride if tone == dark else -stride), build, tone)
    if "udder" in build.extras:
        s.oval(back + 0.24, build.legs + 0.02, 0.1, 0.07, (232, 170, 160))
    if "hump" in build.extras:
        for x in (-0.2, 0.22):
            s.part("hump").poly(arc(x, middle + girth * 0.5, 0.18, 0.36, 0, 0.5), coat, material)
    s.oval(0, middle, half, girth, coat, material)
    s.oval(0, middle - girth * 0.45, half * 0.82, girth * 0.5, (20, 10, 20, 28))
    if material is Material.WOOL:
        for i in range(9):
            s.oval(
                -half + half * 2 * i / 8,
                middle + girth * (0.75 - abs(i - 4) * 0.15),
                0.13,
                0.12,
                shade(coat, 1.02),
                material,
            )
    if "patches" in build.extras and sum(coat) > 500:
        for _ in range(4):
            s.oval(rng.uniform(-half, half) * 0.62, middle + rng.uniform(-0.4, 0.45) * girth, 0.14, 0.1, (58, 46, 42))
    _head(s, build, coat, front * 0.86, middle + girth * 0.35)
    if "spots" in build.extras:
        _spots(s, build, front, middle)


def _leg(s: Sketch, top: float, foot: float, build: Build, tone: RGB) -> None:
    wide = build.leg_width / 2
    s.poly([
        (top - wide * 1.3, build.legs + 0.1), (top + wide * 1.3, build.legs + 0.1), (foot + wide, 0),
        (foot - wide, 0),
    ], tone, build.material)  # fmt: skip
    s.box(foot - wide * 1.1, 0, foot + wide * 1.25, 0.05, shade(tone, 0.55))


def _head(s: Sketch, build: Build, coat: RGB, x: float, y: float) -> None:
    material, r = build.material, build.head
    hx, hy = x + build.neck[0], y + build.neck[1]
    w = build.neck_width
    s.poly([
        (x - w, y + w * 0.1), (x + w * 0.7, y - w * 0.9), (hx + r * 0.55, hy - r * 0.3),
        (hx - r * 0.75, hy + r * 0.4),
    ], coat, material)  # fmt: skip
    if "mane" in build.extras:
        s.part("mane").poly([
            (x - w * 1.3, y + 0.05), (x - w * 0.4, y), (hx - r * 0.4, hy + r * 0.2), (hx, hy + r * 1.3),
            (hx - r * 1.2, hy + r * 0.7),
        ], shade(coat, 0.5), Material.GRASS)  # fmt: skip
    face = (62, 54, 52) if "dark head" in build.extras else coat
    if "antlers" in build.extras or "horn" in build.extras:
        _horns(s, build, hx, hy)
    if build.ears in ("pointed", "long"):
        _ears(s, build, face, hx, hy)
    head = s.part("head")
    head.oval(hx, hy, r, r * 0.92, face, material)
    if build.muzzle > 0.1:
        head.poly([
            (hx - r * 0.1, hy + r * 0.75), (hx + r * 0.7 + build.muzzle, hy - r * 0.1),
            (hx + r * 0.66 + build.muzzle, hy - r * 0.62), (hx - r * 0.2, hy - r * 0.9),
        ], face, material)  # fmt: skip
    tip = hx + r * 0.7 + build.muzzle
    if "snout" in build.extras:
        head.oval(tip - 0.03, hy - r * 0.3, 0.05, 0.09, shade(coat, 0.82))
    elif build.head < 0.25:
        head.oval(tip - 0.02, hy - r * 0.28, 0.035, 0.035, (48, 38, 38))
    head.oval(hx + r * 0.28, hy + r * 0.24, 0.034, 0.036, (24, 20, 22))
    head.oval(hx + r * 0.31, hy + r * 0.3, 0.012, 0.012, (250, 250, 250))
    if "white tip" in build.extras:
        head.oval(hx + r * 0.2, hy - r * 0.55, r * 0.6, r * 0.3, (240, 232, 220), material)
    if "whiskers" in build.extras:
        for dy in (-0.03, 0.02):
            head.line([(hx + r * 0.5, hy - r * 0.3), (hx + r * 1.5, hy - r * 0.3 + dy * 2)], 0.01, (236, 232, 226, 200))
    if "trunk" in build.extras:
        s.part("trunk").line([
            (hx + r * 0.6, hy), (hx + r * 1.2, hy - 0.2), (hx + r * 1.2, hy - 0.46), (hx + r * 1.55, hy - 0.56),
        ], 0.13, shade(coat, 0.94), material)  # fmt: skip
        s.part("tusk").poly(
            [(hx + r * 0.5, hy - r * 0.5), (hx + r * 0.72, hy - r * 0.6), (hx + r * 1.75, hy - r * 0.8)],
            (246, 240, 220),
        )
    if build.ears not in ("pointed", "long"):
        _ears(s, build, face, hx, hy)


def _ears(s: Sketch, build: Build, face: RGB, hx: float, hy: float) -> None:
    r, tone = build.head, shade(face, 0.82)
    if build.ears == "large":
        s.part("ear").poly([
            (hx - r * 0.1, hy + r * 0.7), (hx - r * 1.3, hy + r * 0.8), (hx - r * 1.4, hy - r * 0.7),
            (hx - r * 0.7, hy - r * 1.1), (hx, hy - r * 0.3),
        ], tone, build.material)  # fmt: skip
        return
    for dx in (-0.55, 0.2):
        x = hx + dx * r
        ear = s.part("ear")
        if build.ears == "pointed":
            ear.poly([(x - r * 0.32, hy + r * 0.5), (x + r * 0.36, hy + r * 0.66), (x + r * 0.02, hy + r * 1.5)], tone)
        elif build.ears == "long":
            ear.oval(x, hy + r * 1.35, r * 0.24, r * 0.85, tone)
            ear.oval(x, hy + r * 1.35, r * 0.1, r * 0.6, (222, 166, 156))
        elif build.ears == "hanging":
            ear.oval(x - r * 0.2, hy + r * 0.02, r * 0.3, r * 0.66, shade(face, 0.66), build.material)
            break
        else:
            ear.oval(hx - r * 0.7, hy + r * 0.62, r * 0.42, r * 0.24, tone)
            break


def _horns(s: Sketch, build: Build, hx: float, hy: float) -> None:
    r = build.head
    if "antlers" in build.extras:
        for side in (-0.5, 0.35):
            x = hx + side * r
            antlers = s.part("antlers")
            antlers.line(
                [(x, hy + r * 0.7), (x + side * 0.2, hy + r * 1.8), (x + side * 0.1, hy + r * 2.8)],
                0.035,
                (120, 86, 56),
            )
            antlers.line([(x + side * 0.2, hy + r * 1.8), (x + side * 0.66, hy + r * 2.5)], 0.03, (120, 86, 56))
        return
    for side in (-0.5, 0.1):
        s.part("horn").poly([
            (hx + side * r, hy + r * 0.7), (hx + (side + 0.34) * r, hy + r * 0.8),
            (hx + (side + 0.3) * r, hy + r * 1.7),
        ], (224, 214, 190))  # fmt: skip


def _tail(s: Sketch, build: Build, coat: RGB, x: float, y: float) -> None:
    material = build.material
    tail = s.part("tail")
    if build.tail == "long":
        tail.line([(x + 0.06, y), (x - 0.16, y + 0.12), (x - 0.2, y + 0.26)], 0.07, coat, material)
    elif build.tail == "curl":
        tail.line(
            [(x + 0.06, y), (x - 0.18, y + 0.1), (x - 0.14, y + 0.34), (x - 0.24, y + 0.44)], 0.06, coat, material
        )
    elif build.tail == "bushy":
        tail.poly([
            (x + 0.1, y + 0.06), (x - 0.14, y + 0.02), (x - 0.3, y - 0.3), (x - 0.16, y - 0.42),
            (x + 0.02, y - 0.16),
        ], shade(coat, 0.8), Material.GRASS)  # fmt: skip
        if "white tip" in build.extras:
            tail.oval(x - 0.21, y - 0.34, 0.06, 0.08, (244, 238, 226))
    elif build.tail == "tuft":
        tail.line([(x + 0.04, y), (x - 0.06, y - 0.1), (x - 0.07, y - 0.34)], 0.035, shade(coat, 0.8))
        tail.oval(x - 0.07, y - 0.38, 0.035, 0.07, shade(coat, 0.4))
    else:
        tail.oval(x - 0.01, y, 0.09, 0.08, shade(coat, 1.15), material)


def _spots(s: Sketch, build: Build, front: float, middle: float) -> None:
    rng = s.rng
    brown: RGB = (150, 92, 44)
    for _ in range(16):
        r = rng.uniform(0.03, 0.055)
        s.oval(
            rng.uniform(-0.85, 0.85) * build.length * 0.9,
            middle + rng.uniform(-0.62, 0.62) * build.girth,
            r * 1.2,
            r,
            brown,
        )
    for i in range(7):
        t = 0.12 + i / 8
        x = front * 0.86 + build.neck[0] * t - 0.04
        s.oval(x + rng.uniform(-0.02, 0.03), middle + build.girth * 0.35 + build.neck[1] * t, 0.034, 0.042, brown)


QUADRUPEDS: dict[str, Callable[[Sketch], None]] = {
    name: partial(quadruped, build=build) for name, build in BUILDS.items()
}
"""A painter for each animal of the table."""
