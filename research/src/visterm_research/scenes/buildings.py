"""Buildings: house, church, tower, castle, barn, skyscraper, lighthouse, windmill, tent and bridge."""

from __future__ import annotations

from math import cos, pi, sin

from visterm_research.scenes.canvas import RGB, Sketch, arc, mix, paint, shade, vary
from visterm_research.scenes.materials import Material

ROOFS: tuple[RGB, ...] = ((158, 66, 48), (122, 58, 50), (84, 82, 92), (146, 92, 58))
STONES: tuple[RGB, ...] = ((176, 168, 152), (150, 146, 142), (196, 180, 150))
LIT: RGB = (255, 214, 120)
PANE: RGB = (96, 130, 158)


def house(s: Sketch) -> None:
    """Draw a house with a pitched roof, a door, windows and mostly a chimney."""
    rng = s.rng
    wide, tall, rise = rng.uniform(0.42, 0.62), rng.uniform(0.5, 0.62), rng.uniform(0.26, 0.4)
    colour, names = paint(rng, 0.5)
    blend = rng.choice((0.1, 0.5))
    wall = mix(colour, (236, 222, 200), blend)
    material = rng.choice((Material.BRICK, Material.PLAIN, Material.PLANKS))
    roof = vary(rng, rng.choice(ROOFS), 12)
    if blend < 0.3 or "white" in names:
        s.say(*names)
    s.shadow(0.05, wide * 1.15)
    if rng.random() < 0.75:
        at = rng.choice((-1, 1)) * wide * 0.55
        chimney = s.part("chimney")
        chimney.box(at - 0.055, tall, at + 0.055, tall + rise + 0.06, shade(roof, 0.8), Material.BRICK)
        chimney.box(at - 0.07, tall + rise + 0.03, at + 0.07, tall + rise + 0.07, shade(roof, 0.6))
    s.box(-wide, 0, wide, tall, wall, material)
    s.box(wide * 0.72, 0, wide, tall, (20, 20, 40, 35))
    _pitched(s.part("roof"), wide + 0.07, tall, rise, roof, inset=rng.choice((0.0, 0.35)))
    side = rng.choice((-1, 0, 1))
    _door(s, side * wide * 0.55, 0.1, 0.3, vary(rng, (110, 70, 46), 30))
    rows = (0.36,) if tall < 0.56 else (0.12, 0.38)
    for x in (-0.55, 0.0, 0.55):
        for y in rows:
            if y > 0.3 or x != side * 0.55:
                window(s, x * wide - 0.075, y, 0.15, 0.13)


def church(s: Sketch) -> None:
    """Draw a church: a nave with arched windows, a tower with a pointed roof, a clock and a cross."""
    rng = s.rng
    wall = vary(rng, rng.choice((*STONES, (232, 226, 212))), 10)
    roof = vary(rng, rng.choice(ROOFS), 10)
    s.shadow(0.1, 0.6)
    s.box(-0.1, 0, 0.6, 0.36, wall, Material.STONE)
    s.part("roof").poly([(-0.12, 0.36), (0.65, 0.36), (0.55, 0.58), (-0.1, 0.58)], roof, Material.TILES)
    s.box(-0.36, 0, -0.08, 0.62, shade(wall, 1.1), Material.STONE)
    s.box(-0.15, 0, -0.08, 0.62, (20, 20, 40, 40))
    s.part("steeple").poly([(-0.4, 0.62), (-0.04, 0.62), (-0.22, 1.0)], shade(roof, 0.85), Material.TILES)
    cross = s.part("cross")
    cross.line([(-0.22, 0.98), (-0.22, 1.16)], 0.025, (222, 190, 90))
    cross.line([(-0.28, 1.1), (-0.16, 1.1)], 0.025, (222, 190, 90))
    clock = s.part("clock")
    clock.oval(-0.22, 0.5, 0.075, 0.075, (60, 56, 60))
    clock.oval(-0.22, 0.5, 0.06, 0.06, (246, 242, 226), glows=True)
    clock.line([(-0.22, 0.54), (-0.22, 0.5), (-0.19, 0.49)], 0.012, (40, 40, 40))
    for x in (0.06, 0.26, 0.46):
        _arched(s, "window", x, 0.1, 0.09, 0.14)
    _arched(s, "door", -0.29, 0.0, 0.14, 0.14, (92, 60, 44))


def tower(s: Sketch) -> None:
    """Draw a round stone tower with battlements and, sometimes, a flag."""
    rng = s.rng
    wall = vary(rng, rng.choice(STONES), 12)
    s.shadow(0.08, 0.3)
    s.poly([(-0.2, 0), (0.2, 0), (0.16, 0.8), (-0.16, 0.8)], wall, Material.STONE)
    s.poly([(0.06, 0), (0.2, 0), (0.16, 0.8), (0.06, 0.8)], (20, 20, 40, 50))
    _battlements(s, -0.21, 0.21, 0.8, wall)
    for y in (0.3, 0.56):
        _arched(s, "window", -0.05, y, 0.08, 0.1)
    _arched(s, "door", -0.07, 0.0, 0.13, 0.14, (84, 58, 40))
    if rng.random() < 0.6:
        _flag(s, 0.0, 0.88)


def castle(s: Sketch) -> None:
    """Draw a castle: a wall between towers with pointed roofs, a gate and flags."""
    rng = s.rng
    wall, roof = vary(rng, rng.choice(STONES), 12), vary(rng, rng.choice(((84, 82, 112), *ROOFS)), 10)
    s.shadow(0.0, 0.75)
    s.box(-0.26, 0.1, 0.26, 0.66, shade(wall, 0.88), Material.STONE)
    _battlements(s, -0.28, 0.28, 0.66, shade(wall, 0.88))
    s.box(-0.55, 0, 0.55, 0.38, wall, Material.STONE)
    _battlements(s, -0.5, 0.5, 0.38, wall)
    for x in (-0.52, 0.52):
        tower = s.part("tower")
        tower.box(x - 0.12, 0, x + 0.12, 0.58, shade(wall, 1.06), Material.STONE)
        tower.box(x + 0.05, 0, x + 0.12, 0.58, (20, 20, 40, 45))
        s.part("roof").poly([(x - 0.16, 0.58), (x + 0.16, 0.58), (x, 0.92)], roof, Material.TILES)
        _arched(s, "window", x - 0.03, 0.38, 0.06, 0.08)
    for x in (-0.14, 0.08):
        _arched(s, "window", x, 0.46, 0.07, 0.09)
    _arched(s, "door", -0.1, 0.0, 0.2, 0.16, (84, 58, 40))
    _flag(s, rng.choice((-0.52, 0.52)), 0.9)


def barn(s: Sketch) -> None:
    """Draw a red barn with a bent roof and a wide door crossed by boards."""
    rng = s.rng
    wall = vary(rng, (164, 44, 38), 16)
    s.say("red")
    s.shadow(0.05, 0.6)
    front = [(-0.5, 0), (0.5, 0), (0.5, 0.44), (0.34, 0.68), (0.0, 0.82), (-0.34, 0.68), (-0.5, 0.44)]
    s.poly(front, wall, Material.PLANKS)
    roof = s.part("roof")
    edge = [(-0.58, 0.42), (-0.37, 0.74), (0.0, 0.9), (0.37, 0.74), (0.58, 0.42)]
    inner = [(0.5, 0.4), (0.33, 0.67), (0.0, 0.81), (-0.33, 0.67), (-0.5, 0.4)]
    roof.poly(edge + inner, (92, 86, 88), Material.TILES)
    door = s.part("door")
    door.box(-0.2, 0, 0.2, 0.36, (232, 226, 214))
    door.box(-0.17, 0.03, 0.17, 0.33, shade(wall, 0.85), Material.PLANKS)
    door.line([(-0.17, 0.03), (0.17, 0.33)], 0.025, (232, 226, 214))
    door.line([(0.17, 0.03), (-0.17, 0.33)], 0.025, (232, 226, 214))
    window(s, -0.08, 0.5, 0.16, 0.13)


def skyscraper(s: Sketch) -> None:
    """Draw a skyscraper: a tall block with a grid of windows and sometimes an antenna."""
    rng = s.rng
    wide, wall = rng.uniform(0.13, 0.2), vary(rng, rng.choice(((120, 136, 156), (170, 160, 148), (92, 102, 120))), 14)
    if rng.random() < 0.4:
        s.part("antenna").line([(0, 1.0), (0, 1.14)], 0.014, (90, 90, 96))
    s.box(-wide, 0, wide, 1.0, wall, Material.METAL)
    s.box(wide * 0.5, 0, wide, 1.0, (20, 20, 40, 45))
    columns, rows = rng.choice((3, 4)), rng.choice((7, 9))
    night = s.mood.hour == "night"
    for row in range(rows):
        for column in range(columns):
            x = -wide + wide * 2 * (column + 0.22) / columns
            y = 0.06 + 0.9 * row / rows
            lit = night and rng.random() < 0.55
            pane = LIT if lit else mix(PANE, wall, rng.choice((0.0, 0.25)))
            s.part("window").box(x, y, x + wide * 1.1 / columns, y + 0.5 / rows, pane, glows=lit)


def lighthouse(s: Sketch) -> None:
    """Draw a lighthouse with painted bands, a gallery and its lamp, on rock."""
    rng = s.rng
    colour, names = rng.choice((((196, 40, 40), ("red",)), ((40, 70, 140), ("blue",)), ((50, 50, 54), ())))
    band = vary(rng, colour, 8)
    s.say(*names, "white")
    s.poly([(-0.42, -0.06), (0.46, -0.06), (0.3, 0.08), (0.1, 0.12), (-0.2, 0.1)], (104, 98, 92), Material.ROCK)
    for i in range(5):
        low, high = 0.08 + 0.14 * i, 0.08 + 0.14 * (i + 1)
        a, b = 0.17 - 0.012 * i, 0.17 - 0.012 * (i + 1)
        s.poly([(-a, low), (a, low), (b, high), (-b, high)], band if i % 2 == 0 else (240, 236, 228), Material.STONE)
    s.poly([(0.05, 0.08), (0.17, 0.08), (0.11, 0.78), (0.05, 0.78)], (20, 20, 40, 45))
    s.box(-0.15, 0.78, 0.15, 0.81, (60, 60, 66))
    s.part("lamp").box(-0.075, 0.81, 0.075, 0.92, (255, 236, 150), glows=True)
    if s.mood.hour == "night":
        s.poly([(0, 0.88), (1.6, 1.12), (1.6, 0.74)], (255, 240, 180, 70))
    s.part("roof").poly([(-0.11, 0.92), (0.11, 0.92), (0, 1.03)], band)
    _arched(s, "door", -0.05, 0.1, 0.1, 0.1, (84, 58, 40))
    window(s, -0.035, 0.45, 0.07, 0.08)


def windmill(s: Sketch) -> None:
    """Draw a windmill with four blades."""
    rng = s.rng
    wall = vary(rng, rng.choice(((226, 218, 200), (150, 112, 84))), 10)
    s.shadow(0.05, 0.36)
    s.poly([(-0.24, 0), (0.24, 0), (0.14, 0.6), (-0.14, 0.6)], wall, rng.choice((Material.BRICK, Material.PLANKS)))
    s.part("roof").poly(arc(0, 0.6, 0.17, 0.17, 0, 0.5), (98, 62, 48), Material.TILES)
    _arched(s, "door", -0.07, 0.0, 0.14, 0.15, (84, 58, 40))
    window(s, -0.045, 0.36, 0.09, 0.09)
    start = rng.random()
    for i in range(4):
        angle = 2 * pi * (start + i / 4)
        ux, uy = cos(angle), sin(angle)
        blade = s.part("blade")
        blade.line([(0, 0.63), (0.46 * ux, 0.63 + 0.46 * uy)], 0.022, (92, 70, 54))
        corner = [(0.12, 0.0), (0.46, 0.0), (0.46, 0.11), (0.12, 0.11)]
        blade.poly([(a * ux - b * uy, 0.63 + a * uy + b * ux) for a, b in corner], (240, 232, 212), Material.PLANKS)
    s.oval(0, 0.63, 0.03, 0.03, (60, 46, 40))


def tent(s: Sketch) -> None:
    """Draw a tent with its opening."""
    colour, names = paint(s.rng, 0.7)
    s.say(*names)
    s.shadow(0.1, 0.75, 0.06)
    s.poly([(-0.3, 0.62), (0.35, 0.62), (0.75, 0), (0.05, 0)], shade(colour, 0.78))
    s.poly([(-0.62, 0), (0.05, 0), (-0.3, 0.66)], colour)
    s.part("door").poly([(-0.42, 0), (-0.12, 0), (-0.29, 0.46)], (52, 44, 44))
    s.line([(-0.3, 0.66), (-0.8, 0)], 0.012, (230, 226, 210))


def bridge(s: Sketch) -> None:
    """Draw a stone bridge of three arches; it is painted over water."""
    rng = s.rng
    wall = vary(rng, rng.choice(STONES), 10)
    top = arc(0, 0.16, 1.4, 0.3, 0.5, 0.0, 16)
    outline = [(-1.4, -0.05), *top, (1.4, -0.05)]
    for x, wide, high in ((0.8, 0.22, 0.2), (0.0, 0.32, 0.28), (-0.8, 0.22, 0.2)):
        outline += [(x + wide, -0.05), *arc(x, 0.02, wide, high, 0.0, 0.5, 10), (x - wide, -0.05)]
    s.poly(outline, wall, Material.STONE)
    s.line([(x, y + 0.02) for x, y in top], 0.05, shade(wall, 1.15))


def window(s: Sketch, x: float, y: float, wide: float, tall: float) -> None:
    """Draw a framed window with a crossbar, lit at night."""
    lit = s.mood.hour != "day" and s.rng.random() < 0.7
    window = s.part("window")
    window.box(x - 0.015, y - 0.015, x + wide + 0.015, y + tall + 0.015, (238, 234, 224))
    window.box(x, y, x + wide, y + tall, LIT if lit else vary(s.rng, PANE, 12), glows=lit)
    window.line([(x + wide / 2, y), (x + wide / 2, y + tall)], 0.014, (238, 234, 224))
    if wide * s.pixels > 6:
        window.line([(x, y + tall / 2), (x + wide, y + tall / 2)], 0.014, (238, 234, 224))


def _door(s: Sketch, x: float, half: float, tall: float, colour: RGB) -> None:
    door = s.part("door")
    door.box(x - half * 0.85, 0, x + half * 0.85, tall + 0.02, shade(colour, 0.6))
    door.box(x - half * 0.7, 0, x + half * 0.7, tall, colour, Material.PLANKS)
    door.oval(x + half * 0.45, tall * 0.45, 0.014, 0.014, (230, 200, 90))


def _arched(s: Sketch, part: str, x: float, y: float, wide: float, tall: float, fill: RGB | None = None) -> None:
    lit = fill is None and s.mood.hour == "night" and s.rng.random() < 0.7
    colour = fill or (LIT if lit else (70, 84, 104))
    half = wide / 2
    s.part(part).poly([(x, y), (x + wide, y), *arc(x + half, y + tall, half, half * 1.2, 0, 0.5, 8)], colour, glows=lit)


def _pitched(s: Sketch, wide: float, low: float, rise: float, roof: RGB, *, inset: float) -> None:
    """Paint a gable, or a hipped roof where `inset` is above 0, with snow on it in winter."""
    top = wide * inset * 1.6
    s.poly([(-wide, low), (wide, low), (top, low + rise), (-top, low + rise)], roof, Material.TILES)
    if s.mood.season == "winter":
        cap = low + rise * 0.4
        edge = wide - (wide - top) * 0.4
        s.poly([(-edge, cap), (edge, cap), (top, low + rise), (-top, low + rise)], (244, 246, 250), Material.SNOW)


def _battlements(s: Sketch, left: float, right: float, low: float, wall: RGB) -> None:
    s.box(left, low, right, low + 0.04, wall, Material.STONE)
    n = max(3, round((right - left) / 0.11))
    step = (right - left) / (2 * n - 1)
    for i in range(n):
        s.box(left + 2 * i * step, low + 0.04, left + (2 * i + 1) * step, low + 0.09, wall, Material.STONE)


def _flag(s: Sketch, x: float, y: float) -> None:
    colour, _ = paint(s.rng, 0.9)
    flag = s.part("flag")
    flag.line([(x, y), (x, y + 0.24)], 0.015, (80, 70, 60))
    flag.poly([(x, y + 0.24), (x + 0.2, y + 0.2), (x, y + 0.12)], colour)
