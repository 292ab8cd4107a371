"""Draws the plots of the report as SVG files. The same figures give the same file.

Text stays text, in a font that every browser has. The background is opaque, so that a plot can be read on a dark page
too. Colour-blind people can tell the colours apart (they are those of Okabe and Ito); markers and dashes differ too.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from . import names
from .data import Part

BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
RED, ORANGE, PURPLE, GREY = "#D55E00", "#E69F00", "#CC79A7", "#595959"
Three = tuple[float, float, float]  # median, lowest, highest
INK, LINES = "#1a1a1a", "#d9d9d9"
WIDTH = 7.6  # inches
ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "distrun",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "grid.color": LINES,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "lines.markersize": 5,
}


@dataclass(frozen=True)
class Look:
    colour: str
    marker: str = "o"
    dashes: str = "-"


LOOKS = {
    names.DISTRUN: Look(RED, "o"),
    names.OPEN_MPI_5: Look(BLUE, "s"),
    names.MPICH: Look(GREEN, "^"),
    names.INTEL_MPI: Look(SKY, "D"),
    names.OPEN_MPI_4: Look(PURPLE, "v", "--"),
    names.GLOO: Look(ORANGE, "P"),
    names.TORCH_GLOO: Look(GREY, "X", "--"),
    names.TORCH_DDP: Look(GREY, "X"),
    names.SWEEP: Look(INK, "", ":"),
}
FALLBACK = Look(GREY, "x")


def svg(figure: Figure) -> str:
    """Returns the file. It has no date and no version, so that only the figures decide what it has."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def series(axes: Any, part: Part, who: str, sizes: Sequence[int]) -> None:
    """Draws the times of a contender by size, with a bar from the lowest to the highest round."""
    there = [size for size in sizes if part.has(who, names.in_place(size))]
    if not there:
        return
    look = LOOKS.get(who, FALLBACK)
    cases = [names.in_place(size) for size in there]
    medians = [part.median(who, case) for case in cases]
    below = [part.median(who, case) - part.lowest(who, case) for case in cases]
    above = [part.highest(who, case) - part.median(who, case) for case in cases]
    ours = who == names.DISTRUN
    axes.errorbar(
        places(sizes, there),
        medians,
        yerr=None if who == names.SWEEP else [below, above],
        color=look.colour,
        marker=look.marker,
        linestyle=look.dashes,
        linewidth=2.6 if ours else 1.5,
        zorder=4 if ours else 3,
        elinewidth=1.0,
        label=names.label(who, part.about.versions),
    )


def places(sizes: Sequence[int], there: Iterable[int]) -> list[int]:
    """Returns the places of sizes on the axis. They have the same distance, because most of them are large."""
    return [sizes.index(size) for size in there]


def by_size(axes: Any, sizes: Sequence[int]) -> None:
    axes.set_xticks(range(len(sizes)), [names.size(size) for size in sizes])
    axes.set_xlabel("bytes of the tensor")


def time_ticks(axes: Any, low: float, high: float) -> None:
    """Labels a logarithmic axis with times."""
    axes.set_yscale("log")
    ticks = [tick for power in range(-9, 2) if low <= (tick := 10.0**power) <= high]
    axes.set_yticks(ticks, [plain_time(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(low, high)


def plain_time(seconds: float) -> str:
    """Returns a power of ten: 1 µs, 10 ms."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= factor * 0.999:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds:g} s"


def span(part: Part, cases: Sequence[str], contenders: Sequence[str]) -> tuple[float, float]:
    """Returns limits for a logarithmic axis with all values."""
    found = [value for who in contenders for case in cases for value in part.values.get(who, {}).get(case, [])]
    return min(found) * 0.7, max(found) * 1.4


def beside(figure: Figure, axes: Any) -> None:
    """Puts the legend to the right of a plot."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=2.6, borderaxespad=0)


def allreduce_time(part: Part) -> Figure:
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    axes: Any = figure.subplots()
    contenders = (names.DISTRUN, *names.PEERS, names.SWEEP)
    for who in contenders:
        series(axes, part, who, names.SIZES)
    by_size(axes, names.SIZES)
    time_ticks(axes, *span(part, [names.in_place(size) for size in names.SIZES], contenders))
    axes.set_ylabel("time of one all-reduce (lower is better)")
    axes.set_title(f"All-reduce of float32, 2 ranks on one host, {part.about.machine['processor']}", loc="left")
    beside(figure, axes)
    return figure


def allreduce_ratio(part: Part) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.8), layout="constrained")
    axes: Any = figure.subplots()
    shown = [1.0]
    for who in names.PEERS:
        sizes = [size for size in names.SIZES if part.has(who, names.in_place(size))]
        ratios = [part.ratio(names.DISTRUN, [who], names.in_place(size)) for size in sizes]
        shown += ratios
        look = LOOKS[who]
        label = names.label(who, part.about.versions)
        axes.plot(
            places(names.SIZES, sizes),
            ratios,
            color=look.colour,
            marker=look.marker,
            linestyle=look.dashes,
            label=label,
        )
    axes.axhline(1.0, color=RED, linewidth=2.6, zorder=4)
    axes.set_yscale("log")
    decades = [digit * 10.0**power for power in range(-4, 5) for digit in (1, 2, 5)]
    ticks = [tick for tick in decades if min(shown) / 2 <= tick <= max(shown) * 2]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    by_size(axes, names.SIZES)
    axes.set_ylabel("time divided by distrun's time")
    axes.set_title("Above the line: slower than distrun. Below it: faster.", loc="left")
    beside(figure, axes)
    return figure


def bars(
    axes: Any, labels: Sequence[str], values: Sequence[Three], colours: Sequence[str], text: Callable[[float], str]
) -> None:
    """Draws horizontal bars of (median, lowest, highest), the first one on top, each with its value."""
    rows = range(len(values))
    errors = [[median - low for median, low, _ in values], [high - median for median, _, high in values]]
    axes.barh(
        rows,
        [value[0] for value in values],
        color=colours,
        height=0.66,
        xerr=errors,
        error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2},
    )
    end = max(high for _, _, high in values) or 1.0
    for row, (median, _, high) in zip(rows, values, strict=True):
        axes.text(high + end * 0.02, row, text(median), va="center", fontsize=9, bbox=ON_WHITE)
    axes.set_yticks(rows, labels)
    axes.set_xlim(0, end * 1.22)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def three(part: Part, who: str, case: str) -> Three:
    return part.median(who, case), part.lowest(who, case), part.highest(who, case)


def scaled(values: Three, factor: float) -> Three:
    return values[0] * factor, values[1] * factor, values[2] * factor


def resnet50(part: Part) -> Figure:
    contenders = [who for who in (names.DISTRUN, *names.MPIS, names.TORCH_DDP) if part.has(who, names.MODEL)]
    contenders.sort(key=lambda who: part.median(who, names.MODEL))
    figure = Figure(figsize=(WIDTH, 0.9 + 0.36 * len(contenders)), layout="constrained")
    axes: Any = figure.subplots()
    values = [three(part, who, names.MODEL) for who in contenders]
    milli = [scaled(value, 1e3) for value in values]
    labels = [names.label(who, part.about.versions) for who in contenders]
    bars(axes, labels, milli, [LOOKS[who].colour for who in contenders], lambda value: f"{names.digits(value)} ms")
    swept = names.in_place(names.MODEL_BYTES)
    if part.has(names.SWEEP, swept):
        limit = part.median(names.SWEEP, swept) * 1e3
        axes.axvline(limit, color=INK, linestyle=":", linewidth=1.5)
        axes.set_title(f"dotted: one sweep over the same memory, {names.digits(limit)} ms", loc="left")
    axes.set_xlabel("all-reduce of ResNet-50's 161 gradients, ms (lower is better)")
    return figure


def training(part: Part, models: Sequence[str], contenders: dict[str, tuple[str, str]]) -> Figure:
    """Draws steps per second, one panel for each model. `contenders`: who -> its label and colour."""
    figure = Figure(figsize=(WIDTH, 0.55 + (0.45 + 0.28 * len(contenders)) * len(models)), layout="constrained")
    panels: Any = figure.subplots(len(models), 1, squeeze=False)
    for axes, model in zip(panels[:, 0], models, strict=True):
        there = [who for who in contenders if part.has(who, model)]
        labels, colours = zip(*(contenders[who] for who in there), strict=True)
        bars(axes, labels, [three(part, who, model) for who in there], colours, names.digits)
        bound = part.median("in step", model)
        axes.axvline(bound, color=INK, linestyle=":", linewidth=1.5)
        axes.set_title(f"{model}; dotted: in step, {names.digits(bound)} steps/s", loc="left")
    panels[-1, 0].set_xlabel("training steps per second (higher is better)")
    return figure


def training_torch(part: Part) -> Figure:
    contenders = {
        "ddp distrun": ("DDP on distrun", RED),
        "optimizer": ("distrun.torch", RED),
        "ddp gloo": ("DDP on gloo", GREY),
        "alone": ("alone", LINES),
    }
    return training(part, ("MLP", "ResNet-18", "transformer"), contenders)


def training_tensorflow(part: Part) -> Figure:
    contenders = {
        "distrun": ("distrun", RED),
        "mwms": ("MultiWorkerMirrored", GREY),
        "alone": ("alone", LINES),
    }
    return training(part, ("MLP", "CNN"), contenders)


def two_hosts(part: Part) -> Figure:
    panels = {
        "1 rank on each host": {"distrun tcp": names.DISTRUN, "openmpi": names.OPEN_MPI_4, "gloo": names.GLOO},
        "2 ranks on each host": {"distrun, 2 a host": names.DISTRUN, "gloo, 2 a host": names.GLOO},
    }
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    both: Any = figure.subplots(1, 2, sharey=True)
    cases = [names.in_place(size) for size in names.SIZES_BETWEEN_HOSTS]
    limits = span(part, cases, list(part.values))
    for axes, (title, contenders) in zip(both, panels.items(), strict=True):
        renamed = {who: part.values[known] for known, who in contenders.items() if known in part.values}
        shown = Part(part.name, part.about, renamed)
        for who in contenders.values():
            series(axes, shown, who, names.SIZES_BETWEEN_HOSTS)
        by_size(axes, names.SIZES_BETWEEN_HOSTS)
        time_ticks(axes, *limits)
        axes.set_title(title, loc="left")
        axes.legend(loc="upper left")
    both[0].set_ylabel("time of one all-reduce (lower is better)")
    return figure


STARTERS = {
    "distrun": Look(RED, "o"),
    "bare ssh": Look(GREY, "X", "--"),
    "mpirun": Look(PURPLE, "v"),
    "mpiexec.hydra": Look(GREEN, "^"),
    "srun": Look(BLUE, "s"),
}


def hosts_of(part: Part) -> list[int]:
    """Returns the numbers of hosts of the part "start"."""
    cases = {case for case in part.values[names.DISTRUN] if case.endswith(" hosts, last line")}
    return sorted(int(case.split()[0]) for case in cases)


def start(part: Part) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes: Any = figure.subplots()
    counts = hosts_of(part)
    for who, look in STARTERS.items():
        there = [(count, f"{count} hosts, last line") for count in counts if part.has(who, f"{count} hosts, last line")]
        if not there:
            continue
        milli = [part.median(who, case) * 1e3 for _, case in there]
        below = [(part.median(who, case) - part.lowest(who, case)) * 1e3 for _, case in there]
        above = [(part.highest(who, case) - part.median(who, case)) * 1e3 for _, case in there]
        axes.errorbar(
            [count for count, _ in there],
            milli,
            yerr=[below, above],
            color=look.colour,
            label=who,
            marker=look.marker,
            linestyle=look.dashes,
            linewidth=2.6 if who == "distrun" else 1.5,
            elinewidth=1.0,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("hosts, one rank on each")
    axes.set_ylabel("ms to the last rank's line")
    beside(figure, axes)
    return figure


def idle(part: Part) -> Figure:
    contenders = [who for who in (names.DISTRUN, *names.MPIS, names.GLOO) if who in part.values]
    labels = [names.label(who, part.about.versions) for who in contenders]
    figure = Figure(figsize=(WIDTH, 0.9 + 0.34 * len(contenders)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    values = [three(part, who, names.IDLE) for who in contenders]
    each = [scaled(value, 1 / names.IDLE_SECONDS) for value in values]
    colours = [LOOKS[who].colour for who in contenders]
    bars(left, labels, each, colours, names.digits)
    left.set_xlabel("context switches per second")
    micro = [scaled(three(part, who, names.IDLE_CPU), 1e6) for who in contenders]
    bars(right, labels, micro, colours, names.digits)
    right.set_xlabel("CPU time per second, µs")
    return figure


DRAWINGS: dict[str, Callable[[Part], Figure]] = {
    "allreduce-time.svg": allreduce_time,
    "allreduce-ratio.svg": allreduce_ratio,
    "resnet50.svg": resnet50,
    "training-torch.svg": training_torch,
    "training-tensorflow.svg": training_tensorflow,
    "two-hosts.svg": two_hosts,
    "start.svg": start,
    "idle.svg": idle,
}


def draw(name: str, part: Part) -> str:
    """Returns the SVG file of this name."""
    with matplotlib.rc_context(STYLE):
        return svg(DRAWINGS[name](part))
