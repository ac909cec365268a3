"""The sky and what is in it: sun, moon, stars, clouds and the rainbow."""

from __future__ import annotations

from visterm_research.scenes.canvas import RGB, Canvas, Sketch, arc, mix, vary
from visterm_research.scenes.materials import Material

SKIES: dict[str, tuple[tuple[RGB, RGB], ...]] = {
    "day": (((70, 132, 206), (188, 216, 238)), ((98, 160, 220), (222, 234, 240)), ((46, 110, 190), (150, 196, 232))),
    "sunset": (((76, 64, 118), (248, 152, 80)), ((120, 70, 96), (252, 188, 100)), ((52, 62, 116), (240, 116, 90))),
    "night": (((12, 16, 42), (44, 56, 96)), ((8, 12, 30), (30, 44, 78))),
}
GREY: tuple[RGB, RGB] = ((124, 132, 144), (190, 196, 202))
RAINBOW: tuple[RGB, ...] = (
    (214, 60, 60), (240, 150, 50), (246, 222, 80), (90, 180, 90), (70, 120, 210), (130, 80, 170),
)  # fmt: skip


def sky(canvas: Canvas, horizon: float) -> RGB:
    """Paint the sky down to a little below the horizon, and give its colour there."""
    rng, mood = canvas.rng, canvas.mood
    top, low = rng.choice(SKIES[mood.hour])
    if mood.hour == "day" and mood.weather != "clear":
        top, low = GREY
    top, low = vary(rng, top, 12), vary(rng, low, 10)
    s = canvas.thing("sky")
    w, bottom = canvas.width, min(canvas.height, horizon + 4)
    s.gradient([(0, 0), (w, 0), (w, bottom), (0, bottom)], top, low, glows=mood.hour != "day")
    _lights(canvas, horizon)
    return low


def _lights(canvas: Canvas, horizon: float) -> None:
    rng, mood = canvas.rng, canvas.mood
    if mood.hour == "night":
        _stars(canvas, horizon)
        if rng.random() < 0.6:
            moon(canvas, horizon)
    elif mood.hour == "sunset":
        if rng.random() < 0.75:
            sun(canvas, rng.uniform(0.15, 0.85) * canvas.width, horizon - rng.uniform(-0.02, 0.16) * canvas.short)
    elif mood.weather == "clear" and rng.random() < 0.2:
        sun(canvas, rng.uniform(0.1, 0.9) * canvas.width, rng.uniform(0.12, 0.3) * horizon)
    cloudy = {"clear": 0.5, "rain": 1.0, "fog": 0.3, "snow": 0.8}[mood.weather]
    if mood.hour != "night" and rng.random() < cloudy:
        for _ in range(rng.randint(1, 4)):
            cloud(canvas, horizon)
    if mood.hour == "day" and rng.random() < (0.3 if mood.weather == "rain" else 0.015):
        rainbow(canvas, horizon)


def sun(canvas: Canvas, x: float, y: float) -> None:
    """Paint the sun with its glow: pale by day, large and orange at sunset."""
    late = canvas.mood.hour == "sunset"
    s = canvas.thing("sun", x, y, canvas.short * (0.1 if late else 0.065) * canvas.rng.uniform(0.85, 1.2))
    for i in range(4):
        s.oval(0, 0, 2.6 - 0.4 * i, 2.6 - 0.4 * i, (255, 224, 140, 26) if late else (255, 250, 220, 34))
    s.oval(0, 0, 1, 1, (255, 206, 104) if late else (255, 250, 214), glows=True)


def moon(canvas: Canvas, horizon: float) -> None:
    """Paint the moon, full or as a crescent."""
    rng = canvas.rng
    x, y = rng.uniform(0.1, 0.9) * canvas.width, rng.uniform(0.14, 0.5) * max(horizon, 30)
    s = canvas.thing("moon", x, y, canvas.short * rng.uniform(0.055, 0.085))
    s.oval(0, 0, 1.8, 1.8, (220, 226, 250, 30))
    if rng.random() < 0.5:
        s.oval(0, 0, 1, 1, (240, 238, 222), Material.CLOUD, glows=True)
        for cx, cy, r in ((-0.3, 0.2, 0.2), (0.25, -0.3, 0.26), (0.3, 0.4, 0.14)):
            s.oval(cx, cy, r, r, (212, 210, 200), glows=True)
    else:
        s.poly(
            [*arc(0, 0, 1, 1, -0.25, 0.25, 14), *arc(-0.1, 0, 0.55, 0.98, 0.25, -0.25, 14)], (244, 240, 216), glows=True
        )


def cloud(canvas: Canvas, horizon: float) -> None:
    """Paint a cloud of some puffs, flat below."""
    rng, mood = canvas.rng, canvas.mood
    wet = mood.weather != "clear"
    white: RGB = (196, 198, 204) if wet else (250, 250, 252)
    if mood.hour == "sunset":
        white = (250, 186, 150)
    y = rng.uniform(0.12, 0.75) * max(horizon, canvas.short * 0.25)
    s = canvas.thing("cloud", rng.uniform(0, 1) * canvas.width, y, canvas.short * rng.uniform(0.1, 0.22))
    puffs = rng.randint(4, 6)
    for i in range(puffs):
        x = -1 + 2 * i / (puffs - 1)
        r = rng.uniform(0.24, 0.42) * (1.15 - 0.55 * abs(x))
        s.oval(x, r * 0.35, r * 1.25, r, mix(white, (150, 160, 180), 0.12 * rng.random()), Material.CLOUD, glows=True)
    s.oval(0, -0.02, 1.1, 0.13, mix(white, (140, 150, 172), 0.22), Material.CLOUD, glows=True)


def rainbow(canvas: Canvas, horizon: float) -> None:
    """Paint a rainbow whose feet stand behind the horizon."""
    rng = canvas.rng
    radius = canvas.width * rng.uniform(0.4, 0.56)
    s = canvas.thing("rainbow", canvas.width * rng.uniform(0.3, 0.7), horizon + 2, radius)
    for i, colour in enumerate(RAINBOW):
        s.line(
            arc(0, 0, 1 - 0.03 * i, min(1.0, 0.92 * horizon / radius) - 0.03 * i, 0, 0.5, 30),
            0.034,
            mix(colour, (220, 232, 240), 0.32),
        )


def _stars(canvas: Canvas, horizon: float) -> None:
    rng = canvas.rng
    s: Sketch = canvas.thing("star")
    for _ in range(rng.randint(16, 50)):
        x, y = rng.uniform(0, canvas.width), rng.uniform(0, max(horizon, 20))
        r = rng.uniform(0.4, 1.0)
        s.oval(x, y, r, r, (255, 250, 226), glows=True)
