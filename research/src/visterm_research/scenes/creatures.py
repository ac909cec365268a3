"""Birds, fish, butterflies and people."""

from __future__ import annotations

from visterm_research.scenes.canvas import RGB, Sketch, arc, paint, shade, vary
from visterm_research.scenes.materials import Material

SKINS: tuple[RGB, ...] = ((240, 204, 176), (214, 164, 124), (150, 102, 70), (96, 66, 50))


def gull(s: Sketch) -> None:
    """Draw a gull in flight with raised wings."""
    rng = s.rng
    lift = rng.uniform(0.2, 0.5)
    s.part("wing").poly(
        [(-0.04, 0.04), (-0.42, lift), (-0.9, lift - 0.12), (-0.45, lift - 0.14), (0.12, -0.06)],
        (206, 210, 216),
        Material.FEATHERS,
    )
    s.part("tail").poly([(-0.3, 0.0), (-0.62, 0.08), (-0.6, -0.08)], (226, 228, 232))
    s.oval(0, 0, 0.4, 0.13, (244, 244, 244), Material.FEATHERS)
    s.oval(0.36, 0.06, 0.12, 0.1, (246, 246, 246))
    s.oval(0.4, 0.08, 0.022, 0.022, (20, 20, 24))
    s.part("beak").poly([(0.45, 0.08), (0.62, 0.03), (0.45, 0.0)], (236, 176, 50))
    wing = s.part("wing")
    wing.poly(
        [(-0.12, 0.04), (0.08, lift + 0.16), (-0.34, lift + 0.42), (-0.1, lift + 0.12), (0.2, 0.04)],
        (228, 230, 234),
        Material.FEATHERS,
    )
    wing.poly([(-0.34, lift + 0.42), (-0.22, lift + 0.22), (-0.14, lift + 0.28)], (50, 50, 56))


def duck(s: Sketch) -> None:
    """Draw a swimming duck."""
    rng = s.rng
    body = vary(rng, rng.choice(((150, 124, 98), (240, 238, 230), (170, 160, 150))), 10)
    head = rng.choice(((30, 92, 62), (120, 92, 66), body))
    s.oval(0, -0.02, 0.62, 0.07, (255, 255, 255, 80))
    s.part("tail").poly([(-0.4, 0.24), (-0.72, 0.42), (-0.5, 0.1)], shade(body, 0.8))
    s.poly(arc(0, 0.18, 0.55, 0.24, 0, 1, 20), body, Material.FEATHERS)
    s.part("wing").poly([(0.2, 0.3), (-0.3, 0.36), (-0.5, 0.22), (-0.1, 0.1)], shade(body, 0.78), Material.FEATHERS)
    s.poly([(0.26, 0.24), (0.5, 0.26), (0.52, 0.56), (0.34, 0.56)], head)
    s.oval(0.44, 0.62, 0.17, 0.15, head)
    s.oval(0.5, 0.66, 0.028, 0.028, (16, 16, 20))
    s.part("beak").poly([(0.58, 0.66), (0.82, 0.58), (0.58, 0.54)], (238, 170, 44))


def owl(s: Sketch) -> None:
    """Draw an owl that sits and looks straight at you."""
    rng = s.rng
    brown = vary(rng, rng.choice(((124, 92, 64), (150, 130, 108), (92, 78, 70))), 10)
    s.box(-0.75, -0.06, 0.75, 0.04, (92, 68, 48), Material.BARK)
    for side in (-1, 1):
        s.part("ear").poly([(side * 0.12, 0.86), (side * 0.34, 0.8), (side * 0.32, 1.08)], shade(brown, 0.8))
    s.oval(0, 0.42, 0.36, 0.46, brown, Material.FEATHERS)
    s.oval(0, 0.34, 0.22, 0.32, shade(brown, 1.35), Material.SCALES)
    for side in (-1, 1):
        s.part("wing").poly(
            [(side * 0.28, 0.66), (side * 0.42, 0.36), (side * 0.26, 0.02), (side * 0.18, 0.3)],
            shade(brown, 0.7),
            Material.FEATHERS,
        )
    s.oval(0, 0.74, 0.36, 0.24, brown, Material.FEATHERS)
    for side in (-1, 1):
        s.oval(side * 0.15, 0.76, 0.15, 0.15, shade(brown, 1.5))
        s.oval(side * 0.15, 0.76, 0.1, 0.1, (246, 186, 50))
        s.oval(side * 0.15, 0.76, 0.055, 0.055, (18, 16, 18))
    s.part("beak").poly([(-0.05, 0.7), (0.05, 0.7), (0, 0.56)], (222, 170, 70))


def penguin(s: Sketch) -> None:
    """Draw a standing penguin."""
    s.shadow(0, 0.36, 0.05)
    for side in (-1, 1):
        s.oval(side * 0.14, 0.03, 0.13, 0.04, (238, 160, 50))
        s.part("wing").poly([(side * 0.24, 0.68), (side * 0.46, 0.3), (side * 0.3, 0.3)], (30, 34, 44))
    s.oval(0, 0.46, 0.31, 0.44, (36, 40, 50), Material.FEATHERS)
    s.oval(0.03, 0.4, 0.21, 0.35, (246, 246, 242), Material.FEATHERS)
    s.oval(0, 0.88, 0.18, 0.16, (36, 40, 50))
    s.oval(0.08, 0.92, 0.035, 0.035, (250, 250, 250))
    s.oval(0.09, 0.92, 0.018, 0.018, (10, 10, 14))
    s.oval(-0.02, 0.76, 0.13, 0.05, (246, 200, 80))
    s.part("beak").poly([(0.14, 0.9), (0.34, 0.84), (0.14, 0.82)], (240, 160, 50))


def fish(s: Sketch) -> None:
    """Draw a fish with fins, tail and stripes."""
    rng = s.rng
    colour, names = paint(rng, 0.7)
    if not names:
        colour = vary(rng, (240, 128, 40), 12)
    s.say(*names)
    s.part("tail").poly([(-0.44, 0), (-0.86, 0.32), (-0.74, 0), (-0.86, -0.32)], shade(colour, 0.8))
    s.part("fin").poly([(-0.3, 0.2), (-0.1, 0.48), (0.26, 0.24)], shade(colour, 0.75))
    s.part("fin").poly([(-0.16, -0.2), (-0.14, -0.42), (0.14, -0.24)], shade(colour, 0.75))
    s.oval(0, 0, 0.56, 0.29, colour, Material.SCALES)
    if rng.random() < 0.6:
        stripe = rng.choice(((250, 248, 244), (40, 44, 60)))
        for x, tall in ((-0.2, 0.25), (0.16, 0.26)):
            s.poly([
                (x - 0.05, -tall), (x + 0.05, -tall), (x + 0.08, 0), (x + 0.05, tall), (x - 0.05, tall),
                (x - 0.02, 0),
            ], stripe)  # fmt: skip
    s.oval(0.1, -0.12, 0.36, 0.12, (255, 255, 255, 50))
    s.oval(0.36, 0.07, 0.07, 0.07, (250, 250, 250))
    s.oval(0.38, 0.07, 0.038, 0.038, (12, 12, 16))
    s.line([(0.54, -0.06), (0.46, -0.1)], 0.02, shade(colour, 0.5))


def butterfly(s: Sketch) -> None:
    """Draw a butterfly with open wings."""
    rng = s.rng
    colour, names = paint(rng, 0.8)
    s.say(*names)
    for side in (-1, 1):
        wing = s.part("wing")
        wing.poly(
            [(0, 0.1), (side * 0.34, 0.52), (side * 0.72, 0.5), (side * 0.6, 0.1), (side * 0.12, 0.0)],
            shade(colour, 0.5),
        )
        wing.poly(
            [(0, 0.1), (side * 0.32, 0.44), (side * 0.62, 0.43), (side * 0.52, 0.13), (side * 0.12, 0.02)], colour
        )
        wing.oval(side * 0.45, 0.3, 0.08, 0.08, shade(colour, 1.6))
        wing = s.part("wing")
        wing.poly([(0, 0.02), (side * 0.5, 0.02), (side * 0.54, -0.3), (side * 0.26, -0.42)], shade(colour, 0.5))
        wing.poly([(0, 0.0), (side * 0.42, -0.02), (side * 0.44, -0.24), (side * 0.24, -0.32)], shade(colour, 0.85))
    s.oval(0, 0, 0.06, 0.3, (46, 38, 40))
    for side in (-1, 1):
        s.line([(0, 0.28), (side * 0.16, 0.52)], 0.02, (46, 38, 40))


def person(s: Sketch) -> None:
    """Draw a person who stands or walks, in a coat or a shirt, sometimes with a hat."""
    rng = s.rng
    skin = vary(rng, rng.choice(SKINS), 8)
    shirt, names = paint(rng, 0.8)
    trousers = vary(rng, rng.choice(((56, 66, 96), (70, 60, 54), (44, 46, 52), (150, 134, 104))), 10)
    hair = vary(rng, rng.choice(((50, 36, 28), (30, 26, 26), (196, 156, 92), (150, 80, 40))), 8)
    dress = rng.random() < 0.35
    step, swing = rng.uniform(0.02, 0.1), rng.uniform(0.02, 0.1)
    s.say(*names)
    s.shadow(0.03, 0.2, 0.03)
    for side in (-1, 1):
        leg = s.part("leg")
        leg.poly([
            (side * 0.03 - 0.045, 0.42), (side * 0.03 + 0.045, 0.42), (side * step + 0.035, 0.03),
            (side * step - 0.035, 0.03),
        ], skin if dress else trousers)  # fmt: skip
        leg.oval(side * step + 0.02, 0.02, 0.055, 0.025, (44, 34, 30))
        arm = s.part("arm")
        arm.line(
            [(side * 0.11, 0.74), (side * (0.15 + swing), 0.58), (side * (0.15 + swing * 1.3), 0.44)],
            0.06,
            shade(shirt, 0.84),
        )
        arm.oval(side * (0.15 + swing * 1.3), 0.42, 0.03, 0.03, skin)
    if dress:
        s.poly([(-0.11, 0.78), (0.11, 0.78), (0.2, 0.3), (-0.2, 0.3)], shirt)
    else:
        s.poly([(-0.12, 0.78), (0.12, 0.78), (0.1, 0.4), (-0.1, 0.4)], shirt)
    s.box(-0.03, 0.76, 0.03, 0.83, shade(skin, 0.85))
    head = s.part("head")
    if dress:
        head.oval(0, 0.86, 0.115, 0.13, hair)
    head.oval(0, 0.89, 0.085, 0.1, skin)
    head.poly(arc(0, 0.91, 0.092, 0.09, 0.0, 0.5, 10), hair)
    head.oval(0.03, 0.885, 0.012, 0.014, (30, 24, 24))
    head.oval(-0.035, 0.885, 0.012, 0.014, (30, 24, 24))
    if rng.random() < 0.35:
        tone, _ = paint(rng, 0.7)
        hat = s.part("hat")
        hat.poly([(-0.08, 0.94), (0.08, 0.94), (0.065, 1.05), (-0.065, 1.05)], tone)
        hat.oval(0, 0.94, 0.15, 0.02, shade(tone, 0.8))
