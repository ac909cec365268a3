"""Land and water: meadow, field, forest, mountains, desert, snow, road, sea, lake, river, beach, island and rocks."""

from __future__ import annotations

from math import sin

from visterm_research.scenes.canvas import RGB, Canvas, Points, mix, shade, vary
from visterm_research.scenes.materials import Material

GRASS: tuple[RGB, ...] = ((98, 148, 66), (122, 160, 78), (82, 132, 70))
AUTUMN_GRASS: tuple[RGB, ...] = ((160, 142, 74), (142, 132, 70))
SNOW: RGB = (232, 238, 246)
WATERS: dict[str, tuple[tuple[RGB, RGB], ...]] = {
    "sea": (((30, 92, 150), (66, 146, 182)), ((24, 84, 130), (44, 130, 150)), ((44, 110, 168), (96, 170, 196))),
    "lake": (((88, 136, 160), (52, 96, 124)), ((104, 146, 150), (58, 104, 112))),
    "river": (((96, 140, 164), (66, 116, 148)), ((84, 130, 140), (74, 118, 126))),
}


def grass(canvas: Canvas, horizon: float) -> None:
    """Paint a meadow, or snow in winter."""
    if canvas.mood.season == "winter":
        ground(canvas, "snow", horizon, SNOW, shade(SNOW, 1.3), Material.SNOW)
        return
    colour = vary(canvas.rng, canvas.rng.choice(AUTUMN_GRASS if canvas.mood.season == "autumn" else GRASS), 12)
    ground(canvas, "grass", horizon, mix(colour, (190, 200, 170), 0.3), shade(colour, 0.9), Material.GRASS)


def ground(
    canvas: Canvas, name: str, horizon: float, far: RGB, near: RGB, material: Material, swell: float = 0.02
) -> None:
    """Paint the ground from the horizon to the lower edge, with a slightly uneven skyline."""
    s = canvas.thing(name)
    s.gradient([*_ridge(canvas, horizon, swell * canvas.short, 0.02), *_floor(canvas)], far, near, material)


def field(canvas: Canvas, horizon: float) -> None:
    """Paint a field whose furrows run to a point on the horizon."""
    rng = canvas.rng
    crop = rng.choice(((214, 182, 84), (150, 168, 74), (140, 104, 70), (228, 200, 70)))
    if canvas.mood.season == "winter":
        crop = (214, 214, 214)
    colour = vary(rng, crop, 12)
    s = canvas.thing("field")
    w, h = canvas.width, canvas.height
    s.gradient([(0, horizon), (w, horizon), (w, h), (0, h)], mix(colour, (210, 210, 180), 0.3), colour, Material.GRASS)
    vanish = rng.uniform(0.2, 0.8) * w
    for i in range(-9, 19):
        x = vanish + (i - 5 + 0.5) * w * 0.24
        s.poly([(vanish + (x - vanish) * 0.04, horizon), (x - 3, h), (x + 4, h)], shade(colour, 0.8), Material.GRASS)


def desert(canvas: Canvas, horizon: float) -> None:
    """Paint a desert of dunes, each with a lit and a shaded side."""
    rng = canvas.rng
    sand = vary(rng, rng.choice(((222, 184, 120), (206, 150, 96), (232, 200, 146))), 10)
    s = canvas.thing("desert")
    w, h = canvas.width, canvas.height
    s.gradient([(0, horizon), (w, horizon), (w, h), (0, h)], shade(sand, 1.15), sand, Material.SAND)
    for i in range(3):
        base = horizon + (h - horizon) * (0.1 + 0.3 * i)
        x, rise = rng.uniform(0.1, 0.9) * w, canvas.short * rng.uniform(0.08, 0.16)
        reach = w * rng.uniform(0.5, 0.8)
        s.poly([(x - reach, base + 4), (x, base - rise), (x + reach * 0.2, base + 4)], shade(sand, 1.1), Material.SAND)
        s.poly(
            [(x, base - rise), (x + reach, base + 4), (x - reach * 0.12, base + 4)], shade(sand, 0.84), Material.SAND
        )
        s.gradient([(0, base + 3), (w, base + 3), (w, h), (0, h)], shade(sand, 1.04), sand, Material.SAND)


def savanna(canvas: Canvas, horizon: float) -> None:
    """Paint dry grassland."""
    colour = vary(canvas.rng, (196, 168, 88), 14)
    ground(canvas, "grass", horizon, shade(colour, 1.15), shade(colour, 0.86), Material.GRASS)


def snow(canvas: Canvas, horizon: float) -> None:
    """Paint a plain of snow with soft drifts."""
    ground(canvas, "snow", horizon, shade(SNOW, 0.94), shade(SNOW, 1.4), Material.SNOW, 0.05)


def road(canvas: Canvas, top: float, bottom: float) -> None:
    """Paint a road across the picture, with a kerb and a dashed line."""
    s = canvas.thing("road")
    w = canvas.width
    grey = vary(canvas.rng, (104, 104, 108), 12)
    s.gradient([(0, top), (w, top), (w, bottom), (0, bottom)], shade(grey, 1.1), shade(grey, 0.88), Material.ASPHALT)
    s.line([(0, top), (w, top)], 1.5, (206, 202, 194), Material.STONE)
    middle, dash = (top + bottom) / 2, w / 7
    for i in range(8):
        x = i * dash - dash * 0.3
        s.poly(
            [(x, middle), (x + dash * 0.5, middle), (x + dash * 0.46, middle + 2.4), (x - dash * 0.04, middle + 2.4)],
            (236, 232, 214),
        )


def lane(canvas: Canvas, horizon: float) -> None:
    """Paint a road that runs away to the horizon."""
    rng = canvas.rng
    s = canvas.thing("road")
    w, h = canvas.width, canvas.height
    end, start, half = rng.uniform(0.35, 0.65) * w, rng.uniform(0.3, 0.7) * w, w * rng.uniform(0.2, 0.34)
    grey = vary(rng, (112, 110, 110), 12)
    s.gradient([
        (end - 2, horizon), (end + 2, horizon), (start + half, h), (start - half, h),
    ], shade(grey, 1.2), grey, Material.ASPHALT)  # fmt: skip
    for i in range(5):
        a, b = (i / 5) ** 1.7, ((i + 0.5) / 5) ** 1.7
        xa, xb, ya, yb = (
            end + (start - end) * a,
            end + (start - end) * b,
            horizon + (h - horizon) * a,
            horizon + (h - horizon) * b,
        )
        s.poly(
            [(xa - 0.3 - 2 * a, ya), (xa + 0.3 + 2 * a, ya), (xb + 0.3 + 2 * b, yb), (xb - 0.3 - 2 * b, yb)],
            (238, 234, 216),
        )


def mountains(canvas: Canvas, horizon: float) -> None:
    """Paint some peaks, the far ones paler, with snow on the high ones."""
    rng = canvas.rng
    rock = vary(rng, rng.choice(((104, 110, 124), (122, 108, 96), (88, 104, 112))), 12)
    w = canvas.width
    peaks = sorted(
        (rng.uniform(0.25, 0.62) * min(horizon, canvas.short) for _ in range(rng.randint(2, 4))), reverse=True
    )
    snowy = canvas.mood.season == "winter" or rng.random() < 0.55
    s = canvas.thing("mountain")
    for i, rise in enumerate(peaks):
        x, reach = rng.uniform(0.05, 0.95) * w, rise * rng.uniform(1.0, 1.5)
        tone = mix(rock, (170, 188, 210), 0.34 - 0.11 * i)
        top = horizon - rise
        jag = [(x - reach * 0.55, top + rise * 0.5), (x - reach * 0.3, top + rise * 0.34)]
        s.poly(
            [(x - reach, horizon + 3), *jag, (x, top), (x + reach * 0.4, top + rise * 0.44), (x + reach, horizon + 3)],
            tone,
            Material.ROCK,
        )
        s.poly([
            (x, top), (x + reach * 0.4, top + rise * 0.44), (x + reach, horizon + 3), (x + reach * 0.1, horizon + 3),
            (x - reach * 0.06, top + rise * 0.5),
        ], shade(tone, 0.78), Material.ROCK)  # fmt: skip
        if snowy:
            edge = [(x + reach * 0.22, top + rise * 0.25), (x + reach * 0.08, top + rise * 0.2), (x, top + rise * 0.32)]
            s.poly(
                [(x, top), *edge, (x - reach * 0.1, top + rise * 0.2), (x - reach * 0.22, top + rise * 0.26)],
                (246, 248, 252),
                Material.SNOW,
            )


def hills(canvas: Canvas, horizon: float) -> None:
    """Paint rows of low green hills, paler with distance."""
    rng = canvas.rng
    green = vary(rng, SNOW if canvas.mood.season == "winter" else rng.choice(GRASS), 14)
    s = canvas.thing("hill")
    for i in range(2):
        tone = mix(green, (176, 198, 210), 0.5 - 0.22 * i)
        lift = canvas.short * (0.12 - 0.07 * i)
        s.poly(
            [*_ridge(canvas, horizon - lift, canvas.short * 0.05, 0.03), *_floor(canvas)],
            tone,
            Material.FOLIAGE if i else Material.GRASS,
        )


def forest(canvas: Canvas, horizon: float) -> None:
    """Paint the edge of a forest along the horizon: pointed tops or round crowns."""
    rng, mood = canvas.rng, canvas.mood
    pointed = rng.random() < 0.5 or mood.season == "winter"
    base: RGB = (38, 78, 56) if pointed else (66, 110, 54)
    if mood.season == "autumn" and not pointed:
        base = (186, 106, 44)
    s = canvas.thing("forest")
    w, size = canvas.width, canvas.short
    s.box(
        0, horizon + 4, w, horizon - size * 0.08, shade(base, 0.66), Material.NEEDLES if pointed else Material.FOLIAGE
    )
    for row in range(2):
        n = 13 - 2 * row
        for i in range(n + 1):
            x = w * (i + rng.uniform(-0.3, 0.3)) / n
            tall, half = size * rng.uniform(0.2, 0.34) * (1 - 0.2 * row), w / n * rng.uniform(0.6, 0.85)
            foot = horizon + 4 + 2 * row
            tone = vary(rng, shade(base, 0.72 + 0.24 * row), 12)
            if pointed:
                s.poly([(x - half, foot), (x, foot - tall), (x + half, foot)], tone, Material.NEEDLES)
                if mood.season == "winter":
                    s.poly(
                        [(x - half * 0.4, foot - tall * 0.6), (x, foot - tall), (x + half * 0.4, foot - tall * 0.6)],
                        SNOW,
                        Material.SNOW,
                    )
            else:
                s.oval(x, foot - tall * 0.55, half, tall * 0.5, tone, Material.FOLIAGE)


def water(canvas: Canvas, name: str, outline: Points) -> None:
    """Paint water inside an outline, with ripples, and a path of light at sunset."""
    rng = canvas.rng
    far, near = rng.choice(WATERS[name])
    if canvas.mood.hour == "sunset":
        far, near = mix(far, (250, 170, 110), 0.5), mix(near, (120, 70, 90), 0.35)
    elif canvas.mood.weather != "clear":
        far, near = mix(far, (140, 148, 156), 0.5), mix(near, (110, 120, 130), 0.5)
    s = canvas.thing(name)
    s.gradient(outline, far, near, Material.WATER)
    high, low = min(y for _, y in outline), max(y for _, y in outline)
    left, right = min(x for x, _ in outline), max(x for x, _ in outline)
    if name == "river":
        return
    for _ in range(int((low - high) / 2.2)):
        t = rng.random() ** 1.3
        y, x = high + (low - high) * t, rng.uniform(left, right)
        long = 2 + 9 * t
        s.line([(x - long, y), (x, y - 0.7 * t), (x + long, y)], 0.5, (255, 255, 255, 60))


def sea(canvas: Canvas, horizon: float) -> None:
    """Paint the sea from the horizon down, with waves in the foreground on some days."""
    rng = canvas.rng
    w, h = canvas.width, canvas.height
    water(canvas, "sea", [(0, horizon), (w, horizon), (w, h), (0, h)])
    if rng.random() < 0.4:
        waves(canvas, horizon)


def waves(canvas: Canvas, horizon: float) -> None:
    """Paint rows of waves with white crests."""
    rng = canvas.rng
    w, h = canvas.width, canvas.height
    s = canvas.thing("wave")
    for row in range(3):
        base = horizon + (h - horizon) * (0.36 + 0.22 * row)
        rise, long = 2 + 2.4 * row, 14 + 10 * row
        shift = rng.uniform(0, 6.3)
        crest = [(x, base - rise * abs(sin(x / long + shift))) for x in range(-4, w + 8, 3)]
        s.poly(
            [*crest, *[(x, y + 3 + 2.2 * row) for x, y in reversed(crest)]],
            vary(rng, (44, 120, 158), 14),
            Material.WATER,
        )
        s.line(crest, 1.0 + 0.5 * row, (240, 248, 250))


def beach(canvas: Canvas, top: float) -> None:
    """Paint a beach along the lower edge, wet and foamy where the water ends."""
    rng = canvas.rng
    sand = vary(rng, rng.choice(((232, 208, 160), (220, 192, 142), (238, 222, 186))), 8)
    slope = rng.uniform(-0.12, 0.12) * canvas.short
    w, h = canvas.width, canvas.height
    s = canvas.thing("beach")
    edge = [(x, top + slope * (x / w - 0.5) * 2 + 2.2 * sin(x / 17 + slope)) for x in range(-2, w + 10, 6)]
    s.line([(x, y - 1.5) for x, y in edge], 3, (255, 255, 255, 170))
    s.gradient([*edge, (w, h), (0, h)], shade(sand, 0.86), sand, Material.SAND)


def lake(canvas: Canvas, horizon: float) -> tuple[float, float]:
    """Paint a lake between two shores, and give where it lies."""
    rng = canvas.rng
    w, h = canvas.width, canvas.height
    top = horizon + (h - horizon) * rng.uniform(0.08, 0.18)
    low = horizon + (h - horizon) * rng.uniform(0.68, 0.86)
    far = [(x, top + 1.5 * sin(x / 19)) for x in range(-2, w + 10, 8)]
    near = [(x, low + 3 * sin(x / 23 + 1)) for x in range(w + 6, -8, -8)]
    water(canvas, "lake", [*far, *near])
    return top, low


def river(canvas: Canvas, horizon: float) -> tuple[float, float]:
    """Paint a river that winds from the horizon to the lower edge, and give where boats can float."""
    rng = canvas.rng
    w, h = canvas.width, canvas.height
    x0, x1, bend = (
        rng.uniform(0.3, 0.7) * w,
        rng.uniform(0.3, 0.7) * w,
        rng.choice((-1, 1)) * w * rng.uniform(0.12, 0.22),
    )
    left, right = [], []
    for i in range(13):
        t = i / 12
        y = horizon + 1 + (h - horizon) * t
        x = x0 + (x1 - x0) * t + bend * sin(5.2 * t)
        half = w * (0.015 + 0.3 * t**1.3)
        left.append((x - half, y))
        right.append((x + half, y))
    water(canvas, "river", left + right[::-1])
    return h * 0.82, h * 0.94


def island(canvas: Canvas, horizon: float) -> None:
    """Paint an island on the horizon."""
    rng = canvas.rng
    s = canvas.thing(
        "island", rng.uniform(0.15, 0.85) * canvas.width, horizon + 3, canvas.short * rng.uniform(0.25, 0.4)
    )
    s.poly(
        [(-1, 0), (-0.7, 0.16), (-0.3, 0.34), (0.05, 0.24), (0.4, 0.4), (0.75, 0.14), (1, 0)],
        vary(rng, (78, 112, 66), 14),
        Material.FOLIAGE,
    )
    s.poly([(-1.05, 0), (-0.8, 0.05), (0.8, 0.06), (1.05, 0)], (214, 192, 146), Material.SAND)


def rocks(canvas: Canvas, top: float, bottom: float) -> None:
    """Paint a heap of rocks."""
    rng = canvas.rng
    x, y = rng.uniform(0.05, 0.95) * canvas.width, rng.uniform(top, bottom)
    s = canvas.thing("rock", x, y, canvas.short * rng.uniform(0.1, 0.2))
    for _ in range(rng.randint(2, 3)):
        dx, r = rng.uniform(-0.7, 0.7), rng.uniform(0.4, 0.75)
        tone = vary(rng, (120, 114, 108), 14)
        s.poly(
            [(dx - r, 0), (dx - r * 0.7, r * 0.6), (dx - r * 0.1, r), (dx + r * 0.6, r * 0.7), (dx + r, 0)],
            tone,
            Material.ROCK,
        )
        s.poly(
            [(dx + r, 0), (dx + r * 0.6, r * 0.7), (dx - r * 0.1, r), (dx + r * 0.15, r * 0.4), (dx + r * 0.1, 0)],
            shade(tone, 0.72),
            Material.ROCK,
        )


def deep(canvas: Canvas) -> None:
    """Paint the sea from below: shafts of light, a floor of sand, weeds and bubbles."""
    rng = canvas.rng
    w, h = canvas.width, canvas.height
    s = canvas.thing("sea")
    top = vary(rng, rng.choice(((64, 170, 196), (50, 140, 190), (70, 176, 176))), 12)
    s.gradient([(0, 0), (w, 0), (w, h), (0, h)], top, shade(top, 0.36), Material.CLOUD)
    for _ in range(4):
        x, half = rng.uniform(0, w), rng.uniform(4, 14)
        s.poly([(x, 0), (x + half, 0), (x + half * 2.4 - 26, h), (x - 40, h)], (220, 250, 250, 22))
    floor = [(x, h * 0.86 + 4 * sin(x / 21)) for x in range(-2, w + 10, 8)]
    s.gradient([*floor, (w, h), (0, h)], (150, 156, 130), (110, 120, 108), Material.SAND)
    for _ in range(rng.randint(3, 7)):
        x, tall = rng.uniform(0, w), h * rng.uniform(0.15, 0.4)
        weed = [(x + 3 * sin(i * 1.3), h - tall * i / 6) for i in range(7)]
        s.line(weed, 2.2, vary(rng, (50, 120, 84), 20))
    for _ in range(rng.randint(4, 12)):
        s.oval(rng.uniform(0, w), rng.uniform(0, h * 0.8), 1.4, 1.4, (230, 250, 255, 120))


def blurred_leaves(canvas: Canvas) -> None:
    """Paint the soft background of a close-up: large patches of leaf colours."""
    rng = canvas.rng
    w, h = canvas.width, canvas.height
    base = vary(rng, rng.choice(AUTUMN_GRASS if canvas.mood.season == "autumn" else GRASS), 16)
    s = canvas.thing("grass")
    s.gradient([(0, 0), (w, 0), (w, h), (0, h)], shade(base, 0.9), shade(base, 0.5), Material.SNOW)
    for _ in range(22):
        r = rng.uniform(0.06, 0.2) * canvas.short
        s.oval(rng.uniform(0, w), rng.uniform(0, h), r, r, (*vary(rng, base, 46), 70))


def _ridge(canvas: Canvas, y: float, swell: float, pace: float) -> list[tuple[float, float]]:
    a, b = canvas.rng.uniform(0, 6.3), canvas.rng.uniform(0, 6.3)
    return [
        (x, y + swell * (0.6 * sin(x * pace + a) + 0.4 * sin(x * pace * 2.3 + b)))
        for x in range(-4, canvas.width + 12, 8)
    ]


def _floor(canvas: Canvas) -> list[tuple[float, float]]:
    return [(canvas.width + 4, canvas.height), (-4, canvas.height)]
