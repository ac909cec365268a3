"""Vehicles: car, bus, lorry, bicycle, train, aeroplane, balloon, and the boats: sailboat, ship and rowing boat."""

from __future__ import annotations

from math import cos, pi, sin

from visterm_research.scenes.canvas import RGB, Fill, Sketch, arc, paint, shade, vary
from visterm_research.scenes.materials import Material

GLASS: RGB = (150, 184, 204)
TYRE: RGB = (34, 34, 38)
SAILS: tuple[tuple[RGB, tuple[str, ...]], ...] = (
    ((246, 242, 232), ("white",)),
    ((246, 242, 232), ("white",)),
    ((226, 120, 70), ()),
    ((210, 60, 56), ("red",)),
)
"""Sailcloth, and the colour that people call it."""


def car(s: Sketch) -> None:
    """Draw a car from the side, with two wheels, windows, a door and a headlight."""
    rng = s.rng
    colour, names = paint(rng, 0.8)
    s.say(*names)
    s.shadow(0, 1.02, 0.07)
    high = rng.uniform(0.72, 0.84)
    back = rng.choice((-0.8, -0.66))
    s.poly([(back, 0.42), (back + 0.18, high), (0.3, high), (0.62, 0.42)], shade(colour, 0.92))
    s.poly([(-1, 0.16), (-1, 0.42), (-0.9, 0.5), (0.6, 0.48), (0.95, 0.4), (1.02, 0.3), (1.02, 0.16)], colour)
    s.poly([(-1, 0.16), (1.02, 0.16), (1.02, 0.24), (-1, 0.24)], (10, 10, 20, 70))
    for left, right, lean in ((back + 0.14, -0.14, 0.1), (-0.08, 0.5, -0.22)):
        window = s.part("window")
        a, b = (left + max(0.0, lean), right + min(0.0, lean))
        window.poly([(left, 0.48), (right, 0.48), (b, high - 0.06), (a, high - 0.06)], GLASS)
        window.line([(left + 0.05, 0.5), (a + 0.12, high - 0.08)], 0.02, (230, 240, 244, 150))
    door = s.part("door")
    door.box(-0.12, 0.22, 0.42, 0.46, shade(colour, 0.88))
    door.line([(-0.02, 0.4), (0.08, 0.4)], 0.025, (230, 230, 230))
    s.part("headlight").oval(0.96, 0.35, 0.06, 0.05, (255, 244, 190), glows=True)
    if s.mood.hour == "night":
        s.poly([(1.0, 0.36), (2.0, 0.42), (2.0, 0.02)], (255, 240, 170, 60))
    s.oval(-0.98, 0.38, 0.035, 0.05, (190, 30, 30))
    for x in (-0.58, 0.6):
        wheel(s, x, 0.2)


def bus(s: Sketch) -> None:
    """Draw a bus: a long block with a row of windows, doors and wheels."""
    rng = s.rng
    colour, names = paint(rng, 0.85)
    s.say(*names)
    s.shadow(0, 1.2, 0.07)
    s.box(-1.2, 0.16, 1.2, 1.02, colour)
    s.poly([(-1.14, 1.02), (1.14, 1.02), (1.04, 1.08), (-1.04, 1.08)], shade(colour, 1.35))
    s.box(-1.2, 0.16, 1.2, 0.28, shade(colour, 0.6))
    s.box(-1.2, 0.46, 1.2, 0.5, (240, 236, 224))
    for i in range(5):
        _pane(s.part("window"), -1.12 + 0.36 * i, 0.6, 0.3, 0.3)
    door = s.part("door")
    door.box(0.76, 0.2, 1.04, 0.92, shade(colour, 0.75))
    _pane(door, 0.79, 0.3, 0.1, 0.58)
    _pane(door, 0.91, 0.3, 0.1, 0.58)
    s.part("headlight").oval(1.16, 0.36, 0.05, 0.06, (255, 244, 190), glows=True)
    for x in (-0.72, 0.5):
        wheel(s, x, 0.19)


def lorry(s: Sketch) -> None:
    """Draw a lorry: a cab in front of a large box on three wheels."""
    rng = s.rng
    cab, names = paint(rng, 0.7)
    load, _ = paint(rng, 0.5)
    s.say(*names)
    s.shadow(0, 1.2, 0.07)
    s.box(-1.2, 0.2, 1.1, 0.3, (52, 52, 58))
    trailer = s.part("trailer")
    trailer.box(-1.22, 0.3, 0.46, 1.16, shade(load, 1.25), Material.METAL)
    trailer.box(-1.22, 0.3, 0.46, 0.4, shade(load, 0.8))
    s.part("cabin").poly([(0.52, 0.18), (1.16, 0.18), (1.16, 0.5), (1.02, 0.92), (0.52, 0.92)], cab)
    s.part("window").poly([(0.72, 0.54), (1.1, 0.54), (0.99, 0.84), (0.72, 0.84)], GLASS)
    s.part("headlight").oval(1.12, 0.32, 0.05, 0.06, (255, 244, 190), glows=True)
    for x in (-0.9, -0.46, 0.82):
        wheel(s, x, 0.2)


def bicycle(s: Sketch) -> None:
    """Draw a bicycle: two spoked wheels, a frame, a saddle and a handlebar."""
    colour, names = paint(s.rng, 0.6)
    s.say(*names)
    s.shadow(0, 0.8, 0.04)
    for x in (-0.5, 0.5):
        wheel = s.part("wheel")
        ring = arc(x, 0.34, 0.32, 0.32, 0, 1, 22)
        wheel.line(ring, 0.055, TYRE)
        for i in range(5):
            angle = pi * i / 5
            dx, dy = 0.31 * cos(angle), 0.31 * sin(angle)
            wheel.line([(x - dx, 0.34 - dy), (x + dx, 0.34 + dy)], 0.014, (170, 170, 176))
    frame = [(-0.5, 0.34), (-0.06, 0.34), (0.36, 0.78), (-0.2, 0.78), (-0.06, 0.34)]
    s.line(frame, 0.055, colour)
    s.line([(-0.5, 0.34), (-0.2, 0.78), (-0.22, 0.88)], 0.05, colour)
    s.line([(0.5, 0.34), (0.34, 0.92)], 0.05, colour)
    s.part("handlebar").line([(0.34, 0.92), (0.2, 1.0), (0.46, 1.0)], 0.05, (60, 60, 64))
    s.part("saddle").poly([(-0.36, 0.92), (-0.08, 0.92), (-0.12, 0.86), (-0.3, 0.84)], (54, 38, 32))


def train(s: Sketch) -> None:
    """Draw a steam train: an engine with a funnel and smoke, and a carriage, on rails."""
    rng = s.rng
    colour, names = paint(rng, 0.5)
    carriage, _ = paint(rng, 0.7)
    s.say(*names)
    s.box(-2.6, -0.02, 2.2, 0.03, (110, 96, 86), Material.ASPHALT)
    s.line([(-2.6, 0.05), (2.2, 0.05)], 0.03, (150, 150, 156))
    for i in range(4):
        smoke = rng.uniform(0.1, 0.16) + 0.05 * i
        s.oval(0.72 - 0.3 * i, 1.05 + 0.08 * i, smoke * 1.2, smoke, (226, 226, 230, 190 - 35 * i))
    s.part("funnel").poly([(0.62, 0.6), (0.78, 0.6), (0.84, 0.94), (0.56, 0.94)], (44, 44, 48))
    s.box(-0.1, 0.26, 0.98, 0.64, colour, Material.METAL)
    s.oval(0.98, 0.45, 0.07, 0.19, shade(colour, 0.7))
    cabin = s.part("cabin")
    cabin.box(-0.2, 0.2, 0.26, 0.9, shade(colour, 0.8))
    cabin.box(-0.26, 0.9, 0.32, 0.96, (50, 50, 54))
    _pane(cabin, -0.08, 0.62, 0.22, 0.2)
    s.box(-2.3, 0.22, -0.4, 0.86, carriage)
    s.box(-2.36, 0.86, -0.34, 0.93, (70, 70, 76))
    s.box(-2.3, 0.36, -0.4, 0.4, (240, 230, 200))
    for i in range(4):
        _pane(s.part("window"), -2.16 + 0.44 * i, 0.5, 0.3, 0.24)
    for x in (-2.0, -1.6, -1.05, -0.66, 0.04, 0.42, 0.8):
        wheel(s, x, 0.15)


def aeroplane(s: Sketch) -> None:
    """Draw an aeroplane in flight, with its wings, tail and a row of windows."""
    colour, names = paint(s.rng, 0.8)
    s.say(*names)
    body: RGB = (236, 238, 242)
    s.part("wing").poly([(0.1, 0.06), (-0.3, 0.06), (-0.55, 0.42), (-0.4, 0.42)], shade(body, 0.82))
    s.part("tail").poly([(-0.92, 0.04), (-0.62, 0.06), (-0.82, 0.4), (-1.0, 0.4)], colour)
    s.poly([*arc(-0.3, 0, 0.75, 0.13, 0.25, 0.5, 8), *arc(0.6, 0, 0.4, 0.13, 0.75, 1.25, 12)], body, Material.METAL)
    s.poly([(-1.05, -0.02), (0.95, -0.05), (0.6, -0.13), (-0.3, -0.13)], (*colour, 200))
    for i in range(7):
        s.part("window").oval(-0.5 + 0.17 * i, 0.04, 0.035, 0.035, (70, 96, 126))
    s.part("wing").poly(
        [(0.2, -0.05), (-0.25, -0.05), (-0.62, -0.46), (-0.42, -0.46)], shade(body, 0.72), Material.METAL
    )


def balloon(s: Sketch) -> None:
    """Draw a hot-air balloon with coloured panels and its basket."""
    rng = s.rng
    first, names = paint(rng, 0.9)
    second, _ = paint(rng, 0.9)
    s.say(*names)
    s.line([(-0.09, 0.16), (-0.24, 0.42)], 0.012, (70, 60, 50))
    s.line([(0.09, 0.16), (0.24, 0.42)], 0.012, (70, 60, 50))
    s.part("basket").box(-0.1, 0.0, 0.1, 0.16, (140, 98, 60), Material.BRICK)
    for i, half in enumerate((0.4, 0.27, 0.12)):
        fill = first if i % 2 == 0 else second
        outline = [(-half * 0.28, 0.3), (half * 0.28, 0.3), *arc(0, 0.72, half, 0.37, -0.06, 0.56, 18)]
        s.poly(outline, fill)
    s.oval(-0.14, 0.85, 0.12, 0.1, (255, 255, 255, 60))


def sailboat(s: Sketch) -> None:
    """Draw a sailing boat: hull, mast and two sails."""
    rng = s.rng
    colour, names = paint(rng, 0.8)
    cloth, cloth_names = rng.choice(SAILS)
    cloth = vary(rng, cloth, 8)
    s.say(*dict.fromkeys((*names, *cloth_names)))
    _wake(s, 0.6)
    s.part("mast").line([(0, 0.14), (0, 1.06)], 0.03, (96, 72, 54))
    sail = s.part("sail")
    sail.poly([(0.03, 0.24), (0.52, 0.24), (0.3, 0.5), (0.03, 1.02)], cloth)
    sail.line([(0.03, 0.5), (0.3, 0.5)], 0.01, (0, 0, 0, 50))
    s.part("sail").poly([(-0.03, 0.24), (-0.4, 0.24), (-0.03, 0.92)], shade(cloth, 0.92))
    hull = s.part("hull")
    hull.poly([(-0.56, 0.18), (0.6, 0.18), (0.44, 0), (-0.4, 0)], colour, Material.PLANKS)
    hull.line([(-0.54, 0.16), (0.58, 0.16)], 0.025, (240, 236, 226))


def ship(s: Sketch) -> None:
    """Draw a ship: a long hull with rows of cabins, funnels and smoke."""
    rng = s.rng
    colour, names = paint(rng, 0.7)
    s.say(*names)
    _wake(s, 1.3)
    for x in (-0.3, 0.12):
        funnel = s.part("funnel")
        funnel.poly([(x - 0.1, 0.6), (x + 0.1, 0.6), (x + 0.08, 0.94), (x - 0.12, 0.94)], vary(rng, (186, 60, 44), 10))
        funnel.box(x - 0.12, 0.86, x + 0.09, 0.94, (50, 50, 54))
        s.oval(x - 0.24, 1.06, 0.2, 0.07, (200, 200, 206, 120))
    s.box(-0.8, 0.3, 0.7, 0.46, (240, 240, 238))
    s.box(-0.6, 0.46, 0.46, 0.62, (228, 230, 232))
    lit = s.mood.hour != "day"
    for y, left, n in ((0.35, -0.72, 8), (0.5, -0.52, 5)):
        for i in range(n):
            s.part("window").box(
                left + 0.18 * i, y, left + 0.18 * i + 0.1, y + 0.06, (255, 214, 120) if lit else GLASS, glows=lit
            )
    hull = s.part("hull")
    hull.poly([(-1.2, 0.32), (1.3, 0.36), (1.08, 0), (-1.06, 0)], colour, Material.METAL)
    hull.poly([(-1.1, 0.07), (1.13, 0.07), (1.08, 0), (-1.06, 0)], (150, 50, 44))


def rowing_boat(s: Sketch) -> None:
    """Draw a rowing boat with its oars."""
    rng = s.rng
    colour = vary(rng, (140, 92, 56), 24)
    _wake(s, 0.7)
    hull = s.part("hull")
    hull.poly([(-0.66, 0.3), (-0.4, 0.24), (0.4, 0.24), (0.68, 0.32), (0.46, 0), (-0.44, 0)], colour, Material.PLANKS)
    hull.line([(-0.64, 0.29), (-0.4, 0.24), (0.4, 0.24), (0.66, 0.31)], 0.035, shade(colour, 1.3))
    oar = s.part("oar")
    oar.line([(-0.1, 0.36), (-0.52, -0.02)], 0.035, (206, 172, 120))
    oar.oval(-0.52, -0.02, 0.09, 0.03, (206, 172, 120))


def wheel(s: Sketch, x: float, radius: float) -> None:
    """Draw a wheel standing on the ground."""
    wheel = s.part("wheel")
    wheel.oval(x, radius, radius, radius, TYRE)
    wheel.oval(x, radius, radius * 0.58, radius * 0.58, (176, 178, 184))
    wheel.oval(x, radius, radius * 0.2, radius * 0.2, (70, 70, 76))


def _pane(s: Sketch, x: float, y: float, wide: float, tall: float) -> None:
    lit = s.mood.hour == "night"
    fill: Fill = (255, 220, 140) if lit else GLASS
    s.box(x, y, x + wide, y + tall, fill, glows=lit)
    s.poly([(x, y), (x + wide * 0.3, y), (x + wide * 0.7, y + tall), (x + wide * 0.4, y + tall)], (255, 255, 255, 50))


def _wake(s: Sketch, half: float) -> None:
    """Lay the reflection and the foam at the water line."""
    s.oval(0, -0.04, half * 1.05, 0.09, (14, 28, 48, 70))
    s.oval(0, -0.01, half * 0.9, 0.035, (255, 255, 255, 110))
