"""Plot: figures as SVG, drawn by hand: lines, with bars from the lowest to the highest round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

COLOURS = ("#1f6fb2", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93", "#444444")
WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 20, 70, 56

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[Point]
    bars: Sequence[tuple[float, float]] = ()  # lowest and highest, for each point


@dataclass(frozen=True)
class Plot:
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    x_names: Mapping[float, str] = field(default_factory=dict)  # instead of numbers

    def svg(self) -> str:
        names = list(dict.fromkeys(line.name for line in self.lines))
        colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(names)}
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12" fill="#333">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            f'<text x="{LEFT}" y="24" font-size="16">{escape(self.title)}</text>',
            *self._legend(colours),
            *self._x_axis(),
            *self._y_axis(),
            *(self._drawn(line, colours[line.name]) for line in self.lines),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _legend(self, colours: Mapping[str, str]) -> list[str]:
        parts, x = [], float(LEFT)
        for name, colour in colours.items():
            parts.append(f'<rect x="{x:.0f}" y="40" width="12" height="12" fill="{colour}"/>')
            parts.append(f'<text x="{x + 17:.0f}" y="50">{escape(name)}</text>')
            x += 34 + 6.6 * len(name)
        return parts

    def _x_axis(self) -> list[str]:
        base = HEIGHT - BOTTOM
        parts = [f'<path d="M{LEFT} {base}H{WIDTH - RIGHT}" stroke="#333"/>']
        for value in self._x_ticks():
            x, name = self._x(value), self.x_names.get(value) or number(value)
            parts.append(f'<path d="M{x:.1f} {base}v5" stroke="#333"/>')
            parts.append(f'<text x="{x:.1f}" y="{base + 19}" text-anchor="middle">{name}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        label = escape(self.x_label)
        parts.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{label}</text>')
        return parts

    def _y_axis(self) -> list[str]:
        parts = []
        for value in ticks(0.0, self._top):
            y = self._y(value)
            parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e3e3e3"/>')
            parts.append(
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
            )
        middle = (TOP + HEIGHT - BOTTOM) / 2
        turned = f'transform="rotate(-90 20 {middle})"'
        label = escape(self.y_label)
        parts.append(f'<text x="20" y="{middle}" text-anchor="middle" {turned}>{label}</text>')
        return parts

    def _drawn(self, line: Line, colour: str) -> str:
        path = "L".join(f"{self._x(x):.1f} {self._y(y):.1f}" for x, y in line.points)
        parts = [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>']
        for (x, _), (low, high) in zip(line.points, line.bars, strict=False):
            span = f"M{self._x(x):.1f} {self._y(low):.1f}V{self._y(high):.1f}"
            parts.append(f'<path d="{span}" stroke="{colour}" stroke-width="5" opacity="0.35"/>')
        return "".join(parts) if line.points else ""

    @property
    def _top(self) -> float:
        ends = [y for line in self.lines for _, y in line.points]
        ends += [high for line in self.lines for _, high in line.bars]
        return max(ends, default=1.0) * 1.05 or 1.0

    @property
    def _span(self) -> tuple[float, float]:
        xs = [self._scaled(x) for line in self.lines for x, _ in line.points] or [0.0]
        return min(xs), max(*xs, min(xs) + 1e-9)

    def _x_ticks(self) -> Sequence[float]:
        if self.x_names:
            return list(self.x_names)
        low, high = self._span
        if self.log_x:
            return [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
        return ticks(low, high)

    def _scaled(self, x: float) -> float:
        return math.log10(max(x, 1e-6)) if self.log_x else x

    def _x(self, x: float) -> float:
        low, high = self._span
        return LEFT + (self._scaled(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def _y(self, y: float) -> float:
        return HEIGHT - BOTTOM - y / self._top * (HEIGHT - TOP - BOTTOM)


def ticks(low: float, high: float) -> list[float]:
    """Five or so round numbers between them."""
    rough = (high - low) / 5 or 1.0
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def number(value: float) -> str:
    """1500 as 1.5k, 2000000 as 2M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
