"""Plants: oak, birch, pine, palm, cactus, tulip, sunflower, daisy and mushroom."""

from __future__ import annotations

from math import cos, pi, sin

from visterm_research.scenes.canvas import RGB, Sketch, arc, paint, shade, vary
from visterm_research.scenes.materials import Material

GREENS: tuple[RGB, ...] = ((58, 112, 50), (78, 128, 52), (44, 96, 56), (96, 138, 60))
AUTUMN: tuple[RGB, ...] = ((206, 110, 36), (190, 70, 36), (222, 164, 52))
SNOW: RGB = (240, 244, 250)


def oak(s: Sketch) -> None:
    """Draw an oak: a broad crown of many lobes on a thick trunk, bare in winter."""
    rng = s.rng
    s.shadow(0.06, 0.42, 0.05)
    bark = vary(rng, (96, 70, 50), 12)
    s.part("trunk").poly([(-0.09, 0), (0.09, 0), (0.05, 0.5), (-0.05, 0.5)], bark, Material.BARK)
    if s.mood.season == "winter":
        _bare(s, bark, 0.4, 0.36)
        return
    _crown(s, 0.0, 0.64, 0.4, 0.3, 11, 0.15)


def birch(s: Sketch) -> None:
    """Draw a birch: a slim white trunk with dark marks and a light, narrow crown."""
    rng = s.rng
    s.shadow(0.04, 0.24, 0.04)
    white = vary(rng, (228, 224, 216), 8)
    trunk = s.part("trunk")
    trunk.poly([(-0.04, 0), (0.04, 0), (0.025, 0.72), (-0.025, 0.72)], white)
    for i in range(6):
        x = rng.choice((-0.03, 0.005))
        trunk.box(x, 0.06 + 0.09 * i, x + 0.025, 0.08 + 0.09 * i, (52, 50, 50))
    if s.mood.season == "winter":
        _bare(s, (150, 140, 134), 0.3, 0.42)
        return
    _crown(s, 0.0, 0.66, 0.24, 0.34, 9, 0.1, lightness=1.14)


def pine(s: Sketch) -> None:
    """Draw a pine or fir: tiers of dark needles, with snow on them in winter."""
    rng = s.rng
    s.shadow(0.04, 0.3, 0.04)
    green = vary(rng, (34, 80, 58), 12)
    s.part("trunk").box(-0.045, 0, 0.045, 0.22, (88, 62, 44), Material.BARK)
    tiers = rng.choice((3, 4, 4))
    leaves = s.part("leaves")
    for i in range(tiers):
        low = 0.14 + 0.78 * i / tiers
        half = 0.34 * (1 - 0.72 * i / tiers)
        high = min(1.0, low + 0.86 / tiers + 0.12)
        tone = shade(green, 0.85 + 0.09 * i)
        leaves.poly([
            (-half, low), (-half * 0.4, low + 0.04), (0, low - 0.02), (half * 0.4, low + 0.04), (half, low),
            (0, high),
        ], tone, Material.NEEDLES)  # fmt: skip
        if s.mood.season == "winter":
            mid = low + (high - low) * 0.4
            leaves.poly([(-half * 0.62, mid), (0, mid - 0.05), (half * 0.62, mid), (0, high)], SNOW, Material.SNOW)


def palm(s: Sketch) -> None:
    """Draw a palm: a bent trunk with rings and a fan of long leaves."""
    rng = s.rng
    s.shadow(0.05, 0.22, 0.04)
    lean = rng.uniform(-0.2, 0.2)
    curve = [(lean * (t / 6) ** 2, 0.76 * t / 6) for t in range(7)]
    trunk = s.part("trunk")
    left = [(x - 0.05 + 0.004 * i, y) for i, (x, y) in enumerate(curve)]
    right = [(x + 0.05 - 0.004 * i, y) for i, (x, y) in enumerate(curve)]
    trunk.poly(left + right[::-1], vary(rng, (150, 116, 78), 10), Material.TILES)
    top = curve[-1]
    green = vary(rng, (62, 128, 58), 14)
    leaves = s.part("leaves")
    n = rng.choice((7, 8, 9))
    for i in range(n):
        angle = pi * (-0.12 + 1.24 * i / (n - 1))
        far = rng.uniform(0.3, 0.42)
        mid = (top[0] + 0.55 * far * cos(angle), top[1] + 0.5 * far * sin(angle) + 0.08)
        tip = (top[0] + far * cos(angle) * 1.08, top[1] + 0.5 * far * sin(angle) - 0.1)
        tone = shade(green, rng.uniform(0.75, 1.1))
        leaves.poly([top, (mid[0], mid[1] + 0.04), tip, (mid[0], mid[1] - 0.045)], tone, Material.GRASS)
    s.oval(top[0] + 0.03, top[1] - 0.03, 0.04, 0.04, (110, 76, 46))


def cactus(s: Sketch) -> None:
    """Draw a tall cactus with raised arms."""
    rng = s.rng
    green = vary(rng, (74, 122, 66), 14)
    s.shadow(0.05, 0.26, 0.04)
    for side in (-1, 1):
        low = rng.uniform(0.34, 0.52)
        branch = s.part("branch")
        branch.line([(0, low), (side * 0.24, low), (side * 0.24, low + 0.28)], 0.12, green, Material.BARK)
        branch.oval(side * 0.24, low + 0.28, 0.06, 0.06, green, Material.BARK)
    s.box(-0.1, 0, 0.1, 0.92, green, Material.BARK)
    s.oval(0, 0.92, 0.1, 0.08, green, Material.BARK)
    s.box(0.03, 0, 0.1, 0.92, (10, 20, 20, 50))
    if rng.random() < 0.5:
        s.oval(0.0, 1.0, 0.05, 0.035, (222, 80, 120))


def tulip(s: Sketch) -> None:
    """Draw a tulip: one cup of petals on a stem with two long leaves."""
    rng = s.rng
    colour, names = paint(rng, 0.75)
    if not names:
        colour = vary(rng, rng.choice(((226, 110, 150), (150, 70, 150), (236, 130, 60))), 12)
    s.say(*names)
    _stem(s, 0.62)
    for side in (-1, 1):
        s.part("petal").poly(
            [(0, 0.58), (side * 0.17, 0.66), (side * 0.19, 0.92), (side * 0.1, 0.84), (0, 0.94)], shade(colour, 0.9)
        )
    s.part("petal").poly(
        [*arc(0, 0.72, 0.1, 0.14, 0.5, 1.0, 8), (0.06, 0.86), (0, 0.93), (-0.06, 0.86)], shade(colour, 1.12)
    )


def sunflower(s: Sketch) -> None:
    """Draw a sunflower: a ring of yellow petals around a brown head."""
    rng = s.rng
    s.say("yellow")
    _stem(s, 0.72)
    n = 16
    for ring, size in ((0.5, 0.27), (0.0, 0.24)):
        for i in range(n):
            angle = 2 * pi * (i + ring) / n
            tip = (size * cos(angle), 0.74 + size * sin(angle))
            side = 0.052
            a = (0.14 * cos(angle) - side * sin(angle), 0.74 + 0.14 * sin(angle) + side * cos(angle))
            b = (0.14 * cos(angle) + side * sin(angle), 0.74 + 0.14 * sin(angle) - side * cos(angle))
            if ring == 0.0 and i % 4 == 0:
                s.part("petal").poly([(0, 0.74), a, tip, b], vary(rng, (246, 192, 36), 10))
            else:
                s.poly([(0, 0.74), a, tip, b], vary(rng, (236, 176, 30), 12))
    s.oval(0, 0.74, 0.14, 0.14, (92, 58, 32), Material.SCALES)


def daisy(s: Sketch) -> None:
    """Draw a daisy: white petals around a yellow middle."""
    rng = s.rng
    s.say("white")
    _stem(s, 0.72)
    n = 12
    for i in range(n):
        angle = 2 * pi * i / n
        x, y = 0.15 * cos(angle), 0.76 + 0.15 * sin(angle)
        if i % 4 == 0:
            s.part("petal").oval(x, y, 0.075, 0.075, (246, 246, 242))
        else:
            s.oval(x, y, 0.07, 0.07, vary(rng, (236, 236, 234), 6))
    s.oval(0, 0.76, 0.08, 0.08, (240, 190, 50))


def mushroom(s: Sketch) -> None:
    """Draw a mushroom: a spotted cap on a pale stem."""
    rng = s.rng
    red = rng.random() < 0.65
    colour = vary(rng, (198, 44, 36) if red else (146, 98, 60), 12)
    s.say(*(("red",) if red else ()))
    s.shadow(0.04, 0.34, 0.05)
    stem = s.part("stem")
    stem.poly([(-0.12, 0), (0.12, 0), (0.09, 0.5), (-0.09, 0.5)], (236, 226, 206), Material.SKIN)
    stem.box(0.03, 0, 0.1, 0.5, (60, 50, 40, 40))
    cap = s.part("cap")
    cap.poly(arc(0, 0.44, 0.42, 0.42, 0, 0.5, 18), colour, Material.SKIN)
    cap.oval(0, 0.44, 0.42, 0.05, shade(colour, 0.7))
    if red:
        for x, y, r in ((-0.22, 0.58, 0.05), (0.02, 0.7, 0.065), (0.22, 0.6, 0.05), (-0.06, 0.54, 0.04)):
            cap.oval(x, y, r, r * 0.85, (250, 244, 234))


def _stem(s: Sketch, high: float) -> None:
    green = vary(s.rng, (70, 130, 56), 14)
    s.part("stem").line([(0, 0), (0, high)], 0.05, green)
    for side in (-1, 1):
        s.part("leaves").poly(
            [(0, 0.06), (side * 0.16, 0.24), (side * 0.22, 0.44), (side * 0.06, 0.26)],
            shade(green, 0.9),
            Material.GRASS,
        )


def _crown(
    s: Sketch, x: float, y: float, across: float, down: float, lobes: int, size: float, *, lightness: float = 1.0
) -> None:
    """Fill a crown with lobes, dark below and light above, and some leaves that catch the light."""
    rng = s.rng
    base = vary(rng, rng.choice(AUTUMN if s.mood.season == "autumn" else GREENS), 12)
    base = shade(base, lightness)
    leaves = s.part("leaves")
    leaves.oval(x, y, across * 0.86, down * 0.86, shade(base, 0.78), Material.FOLIAGE)
    for i in range(lobes):
        angle = 2 * pi * i / lobes + rng.uniform(-0.2, 0.2)
        far = rng.uniform(0.62, 0.82)
        dx, dy = across * far * cos(angle), down * far * sin(angle)
        tone = shade(base, 0.84 + 0.2 * (dy / down) + 0.05 * rng.random())
        r = size * rng.uniform(0.8, 1.15)
        leaves.oval(x + dx, y + dy, r, r * 0.92, tone, Material.FOLIAGE)
    leaves.oval(x - across * 0.25, y + down * 0.28, across * 0.42, down * 0.4, shade(base, 1.1), Material.FOLIAGE)


def _bare(s: Sketch, bark: RGB, across: float, down: float) -> None:
    rng = s.rng
    for i in range(7):
        angle = pi * (0.14 + 0.72 * i / 6)
        x, y = across * cos(angle), 0.5 + down * sin(angle)
        branch = s.part("branch")
        branch.line([(0, 0.36 + 0.02 * i), (x * 0.5, (0.4 + y) / 2), (x, y)], 0.036, bark)
        for side in (-0.5, 0.5):
            branch.line([
                (x * 0.55, (0.42 + y) / 2),
                (x * 0.55 + 0.16 * cos(angle + side), (0.42 + y) / 2 + 0.16 * sin(angle + side)),
            ], 0.02, vary(rng, bark, 8))  # fmt: skip
