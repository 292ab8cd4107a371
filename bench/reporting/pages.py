"""Writes the pages of docs/performance/ and README's section. Every figure in them is from the kept data."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from . import names
from .data import Part

Parts = dict[str, Part]
HEADING = "## How fast it is"
SECTION = re.compile(rf"^{HEADING}\n.*?(?=^## )", re.DOTALL | re.MULTILINE)
NOTE = "% bench/report writes this page from docs/performance/data/.\n"
PLOT_TEXTS = {
    "allreduce-time.svg": "All-reduce time by size, for distrun and six other libraries, with the limit of the memory",
    "allreduce-ratio.svg": "The time of each other library, divided by distrun's time, by size",
    "resnet50.svg": "Time of an all-reduce of ResNet-50's 161 gradients, for each library",
    "training-torch.svg": "Steps per second of three PyTorch models, with distrun and with DDP on gloo",
    "training-tensorflow.svg": "Steps per second of two TensorFlow models: distrun and MultiWorkerMirroredStrategy",
    "two-hosts.svg": "Time of an all-reduce between two hosts by size, for distrun, Open MPI and Gloo",
    "start.svg": "Time until the last rank prints a line, by number of hosts, for five launchers",
    "idle.svg": "Context switches and CPU time of an idle rank, for each library",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"


def picture(name: str, folder: str = "") -> str:
    return f"![{PLOT_TEXTS[name]}]({folder}{name})\n"


def wrapped(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def source(part: Part) -> str:
    """Returns a line about the part's origin."""
    about = part.about
    where = f"on {about.date} at commit `{about.commit[:12]}` by `{about.command}`"
    rounds = f"the median of {about.rounds} rounds, with the lowest and the highest in parentheses"
    return wrapped(f"Measured {where}. Each figure is {rounds}.") + "\n"


def spread(part: Part, who: str, case: str) -> str:
    """Returns a time as its median, with the lowest and the highest round."""
    if not part.has(who, case):
        return ""
    name, of = names.unit(part.median(who, case))
    return f"{rate(part, who, case, of)} {name}"


def rate(part: Part, who: str, case: str, unit: float = 1.0) -> str:
    """Returns a figure as its median, with the lowest and the highest round."""
    low, high = names.digits(part.lowest(who, case) / unit), names.digits(part.highest(who, case) / unit)
    return f"{names.digits(part.median(who, case) / unit)} ({low}-{high})"


def enumeration(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


# --- all-reduce on one host


def peers_of(part: Part) -> list[str]:
    return [who for who in names.PEERS if who in part.values]


def ratios(part: Part) -> dict[int, float]:
    """Returns for each size: the time of the best other library, divided by distrun's."""
    return {size: part.ratio(names.DISTRUN, peers_of(part), names.in_place(size)) for size in names.SIZES}


def faster_from(part: Part) -> int | None:
    """Returns the size from which on distrun is the fastest; None if it is not so at the largest size."""
    found = None
    for size, ratio in reversed(ratios(part).items()):
        if ratio < 1:
            break
        found = size
    return found


def faster(part: Part) -> str:
    """Returns the sentence about the sizes at which distrun is the fastest."""
    limit = faster_from(part)
    if limit is None:
        return "At 64 MiB, another library is faster than distrun."
    there = [ratio for size, ratio in ratios(part).items() if size >= limit]
    known = [names.LABELS[who][0] for who in peers_of(part) if who != names.TORCH_GLOO]  # is Gloo
    others = enumeration(list(dict.fromkeys(known)))
    speed = f"{range_of(there)} times as fast as the best of {others}"
    return wrapped(f"From {names.size(limit)} on, an all-reduce is {speed}.")


def slower(part: Part) -> str:
    """Returns the sentence about the sizes at which distrun is slower."""
    limit = faster_from(part)
    there = [
        f"{names.times(1 / ratio)} times at {names.size(size)}"
        for size, ratio in ratios(part).items()
        if ratio < 1 and (limit is None or size < limit)
    ]
    if not there:
        return "At no size is another library faster."
    return wrapped(f"Small messages take longer than with the best of them: {enumeration(there)}. This is known work.")


def slower_in_short(part: Part) -> str:
    """Returns the same in one short sentence, if distrun is slower at all of the smaller sizes."""
    limit = faster_from(part)
    small = {size: 1 / ratio for size, ratio in ratios(part).items() if limit is None or size < limit}
    if len(small) < 3 or min(small.values()) < 1:
        return slower(part)
    (least, first), *others = small.items()
    span = f"from {names.size(others[0][0])} to {names.size(others[-1][0])}"
    longer = f"{names.times(first)} times the time at {names.size(least)}"
    later = f"{range_of([ratio for _, ratio in others])} times {span}"
    return wrapped(f"Small messages are slower, which is known work: {longer}, and {later}.")


def best(part: Part, case: str) -> str:
    """Returns the other library with the lowest median."""
    return min((who for who in peers_of(part) if part.has(who, case)), key=lambda who: part.median(who, case))


def allreduce_page(part: Part) -> str:
    rows = []
    for size, ratio in ratios(part).items():
        case = names.in_place(size)
        other = best(part, case)
        swept = names.time(part.median(names.SWEEP, case)) if part.has(names.SWEEP, case) else ""
        shown = [names.time(part.median(names.DISTRUN, case)), names.time(part.median(other, case))]
        rows.append([names.size(size), *shown, names.label(other, part.about.versions), names.times(ratio), swept])
    head = ["bytes", "distrun", "best other", "which", "ratio", "one sweep"]
    model = [
        [names.label(who, part.about.versions), spread(part, who, names.MODEL)]
        for who in (names.DISTRUN, *names.MPIS, names.TORCH_DDP)
        if part.has(who, names.MODEL)
    ]
    model.sort(key=lambda row: part.median(of_label(part, row[0]), names.MODEL))
    return f"""{NOTE}# All-reduce on one host

How long does an all-reduce take, and how does that compare with other libraries? Two ranks on one host sum float32
tensors in place.

{faster(part)}

{slower(part)}

## By size

{picture("allreduce-time.svg")}
The dotted line is the limit of the machine: one sweep over the same memory on all cores at once. It reads and writes
each number once, and no all-reduce can be faster.

## Against each library

{picture("allreduce-ratio.svg")}
A ratio of 2 means that the other library takes twice the time.

### The best of the others

{table(head, rows)}
The column *ratio* is the best other library's time divided by distrun's. The best one has the lowest median.

## ResNet-50

A training step of ResNet-50 has 161 gradients with 102 MB in all. distrun gets them one by one, as from a framework.
The MPIs reduce them one after the other. DDP copies them into buckets; its time is that of a backward pass, minus the
time of the same pass without communication.

{picture("resnet50.svg")}
{table(["library", "time"], model)}
## All figures

{source(part)}
### distrun and MPI

{all_sizes(part, (names.DISTRUN, *names.MPIS))}
### Gloo

{all_sizes(part, (names.GLOO, names.TORCH_GLOO))}"""


def all_sizes(part: Part, contenders: Sequence[str]) -> str:
    """Returns a table of the contenders' figures at all sizes."""
    there = [who for who in contenders if who in part.values]
    rows = [[names.size(size), *(spread(part, who, names.in_place(size)) for who in there)] for size in names.SIZES]
    return table(["bytes", *(names.label(who, part.about.versions) for who in there)], rows)


def of_label(part: Part, label: str) -> str:
    return next(who for who in names.LABELS if names.label(who, part.about.versions) == label)


# --- training


def training_rows(part: Part, models: Sequence[str], contenders: dict[str, str]) -> list[list[str]]:
    rows = []
    for model in models:
        for who, label in contenders.items():
            if part.has(who, model):
                share = part.ratio("in step", [who], model)
                rows.append([model, label, rate(part, who, model), names.digits(share, 2)])
    return rows


TORCH_MODELS, TENSORFLOW_MODELS = ("MLP", "ResNet-18", "transformer"), ("MLP", "CNN")
TORCH = {
    "ddp distrun": "DDP on distrun",
    "optimizer": "`distrun.torch`, `DistributedOptimizer`",
    "ddp gloo": "DDP on gloo",
    "in step": "in step",
    "alone": "alone",
}
TENSORFLOW = {
    "distrun": "`distrun.tensorflow`, `DistributedGradientTape`",
    "mwms": "`MultiWorkerMirroredStrategy`, RING",
    "in step": "in step",
    "alone": "alone",
}


def training_page(torch: Part, tensorflow: Part) -> str:
    head = ["model", "with", "steps/s", "of in step"]
    return f"""{NOTE}# Training steps

How many steps per second does a model train with distrun, and with what a framework has itself? Two ranks on one host
train, each with one thread.

## The limits

| row | what it does |
|---|---|
| alone | each rank trains, without communication |
| in step | the same, plus an all-reduce of 4 bytes after each step |

In step, the ranks wait for each other and exchange nothing else. No library that averages gradients can be faster.

## PyTorch

{picture("training-torch.svg")}
{source(torch)}
{table(head, training_rows(torch, TORCH_MODELS, TORCH))}
## TensorFlow

{picture("training-tensorflow.svg")}
{source(tensorflow)}
{table(head, training_rows(tensorflow, TENSORFLOW_MODELS, TENSORFLOW))}
## Notes

- In a round, the same processes train with each contender in turn. `MultiWorkerMirroredStrategy` has its own processes.
- The column *of in step* is the row's steps per second, divided by those of the row *in step*.
- The models are small, because communication matters most there. `bench/torch_training.py` and
  `bench/tensorflow_bench.py` have them.
"""


# --- several hosts


HOSTS = {
    "distrun tcp": "distrun",
    "openmpi": "Open MPI",
    "gloo": "Gloo",
    "distrun, 2 a host": "distrun",
    "gloo, 2 a host": "Gloo",
}


def between_hosts(part: Part, ranks: int) -> str:
    """Returns the table for this number of ranks on each host."""
    cases = [names.in_place(size) for size in names.SIZES_BETWEEN_HOSTS]
    rows = [
        [label, *(spread(part, who, case) for case in cases)]
        for who, label in HOSTS.items()
        if who in part.values and who.endswith(", 2 a host") == (ranks == 2)
    ]
    return table(["", *(names.size(size) for size in names.SIZES_BETWEEN_HOSTS)], rows)


def two_hosts_page(part: Part) -> str:
    return f"""{NOTE}# All-reduce between two hosts

How long does an all-reduce between two hosts take? The hosts are network namespaces on one machine and share its cores.
So the figures compare libraries, and do not tell how fast your network is.

{picture("two-hosts.svg")}
With one rank on each host, distrun uses its backend `tcp`. With two, it uses `hierarchical`: shared memory inside a
host, and a ring of sockets between hosts. Gloo has a ring over all ranks.

## All figures

{source(part)}
### One rank on each host

{between_hosts(part, 1)}
### Two ranks on each host

{between_hosts(part, 2)}
Encryption has its own figures: see [Encrypt tensors](../howto/encrypt-tensors.md).
"""


# --- start and idle


STARTERS = ("distrun", "bare ssh", "mpirun", "mpiexec.hydra", "srun")
LOCAL = "distrun -np 2 true"


def counts(part: Part) -> list[int]:
    """Returns the numbers of hosts on which jobs were started."""
    return sorted(int(case.split()[0]) for case in part.values["distrun"] if case.endswith(" hosts, last line"))


def started(part: Part, line: str) -> str:
    """Returns the table of the times to a line, or to the end."""
    there = [who for who in STARTERS if who in part.values]
    rows = [[str(count), *(spread(part, who, f"{count} hosts, {line}") for who in there)] for count in counts(part)]
    return table(["hosts", *there], rows)


def start_page(start: Part, idle: Part) -> str:
    most = counts(start)[-1]
    failure, memory = f"{most} hosts, end after a failure", f"{most} hosts, MiB"
    others = [
        ["`distrun -np 2 true` on one host", spread(start, LOCAL, "local")],
        [f"the end of a job on {most} hosts after a rank has failed", spread(start, "distrun", failure)],
        ["memory of the launcher and one agent", f"{rate(start, 'launcher and agent', memory)} MiB"],
    ]
    idle_rows = [
        [
            names.label(who, idle.about.versions),
            names.digits(idle.median(who, names.IDLE) / names.IDLE_SECONDS),
            spread(idle, who, names.IDLE_CPU),
        ]
        for who in (names.DISTRUN, *names.MPIS, names.GLOO)
        if who in idle.values
    ]
    return f"""{NOTE}# Start of a job and idle ranks

How long does a job take to start, and what does a rank cost that does nothing?

## Start of a job

One rank on each host prints a line. The time is that from the command to the last rank's line.

{picture("start.svg")}
The hosts are network namespaces on one machine, which share its cores. *bare ssh* starts one `ssh` for each host at
once, and shows what ssh alone costs. `srun` asks daemons that already run.

{source(start)}
### To the first line

{started(start, "first line")}
### To the last line

{started(start, "last line")}
### To the end of the launcher

{started(start, "end")}
## Other times of the launcher

{table(["what", "median"], others)}
## Idle ranks

Two ranks have joined a job and do nothing for {names.IDLE_SECONDS:g} s. The figures are those of the rank that costs
more, with all of its threads.

{picture("idle.svg")}
{source(idle)}
{table(["library", "context switches per second", "CPU time per second"], idle_rows)}"""


# --- the first page, and README


def of_model(part: Part) -> str:
    ours, ddp = part.median(names.DISTRUN, names.MODEL), part.median(names.TORCH_DDP, names.MODEL)
    return f"{names.time(ours)}; DDP on gloo {names.time(ddp)}"


def by_size(part: Part) -> list[list[str]]:
    """Returns the rows of `answers` about the all-reduce on one host."""
    page, limit = "[All-reduce](allreduce.md)", faster_from(part)
    rows = []
    below = [1 / ratio for size, ratio in ratios(part).items() if limit is None or size < limit]
    if below:
        sizes = f"below {names.size(limit)}" if limit is not None else "of any size"
        rows.append([f"all-reduce {sizes}", f"{range_of(below)} times the time of the best other library", page])
    if limit is not None:
        there = [ratio for size, ratio in ratios(part).items() if size >= limit]
        answer = f"{range_of(there)} times the speed of the best other library"
        rows.append([f"all-reduce from {names.size(limit)} on", answer, page])
    return rows


def answers(parts: Parts) -> list[list[str]]:
    """Returns rows of: a question, the short answer, the page."""
    torch, tensorflow = parts["torch"], parts["tensorflow"]
    start, idle = parts["start"], parts["idle"]
    large = names.SIZES_BETWEEN_HOSTS[1:]

    def between(who: str, others: Sequence[str]) -> str:
        return range_of([parts["hosts"].ratio(who, others, names.in_place(size)) for size in large])

    sizes = f"from {names.size(large[0])} to {names.size(large[-1])}"
    one, both = between("distrun tcp", ["openmpi", "gloo"]), between("distrun, 2 a host", ["gloo, 2 a host"])
    ddp = range_of([torch.ratio("ddp gloo", ["ddp distrun"], model) for model in TORCH_MODELS])
    mwms = range_of([tensorflow.ratio("mwms", ["distrun"], model) for model in TENSORFLOW_MODELS])
    most = counts(start)[-1]
    ours, ssh = (names.time(start.median(who, f"{most} hosts, last line")) for who in ("distrun", "bare ssh"))
    switches = names.digits(idle.median("distrun", names.IDLE) / names.IDLE_SECONDS)
    training, two, begin = "[Training](training.md)", "[Two hosts](two-hosts.md)", "[Start](start.md)"
    return [
        *by_size(parts["allreduce"]),
        ["gradients of ResNet-50", of_model(parts["allreduce"]), "[ResNet-50](allreduce.md#resnet-50)"],
        ["training with DDP", f"{ddp} times the steps of DDP on gloo", training],
        ["training with TensorFlow", f"{mwms} times the steps of `MultiWorkerMirroredStrategy`", training],
        [f"two hosts with one rank each, {sizes}", f"{one} times the speed of the better of Open MPI and Gloo", two],
        [f"two hosts with two ranks each, {sizes}", f"{both} times the speed of Gloo", two],
        [f"start on {most} hosts", f"{ours}; bare ssh {ssh}", begin],
        ["an idle rank", f"{switches} context switches per second", "[Idle ranks](start.md#idle-ranks)"],
    ]


def range_of(values: Sequence[float]) -> str:
    low, high = names.times(min(values)), names.times(max(values))
    return low if low == high else f"{low} to {high}"


def index_page(parts: Parts) -> str:
    about = parts["allreduce"].about
    machine = [[name, value] for name, value in about.machine.items()]
    versions = [[name, value] for name, value in about.versions.items()]
    return f"""{NOTE}# Performance

How fast is distrun beside other libraries? One command has measured all figures here, and you can repeat it.

{picture("allreduce-time.svg")}
{faster(parts["allreduce"])}

## The short answers

{table(["question", "answer", "page"], answers(parts))}
## Small messages are slower

{slower(parts["allreduce"])}

The ranks of distrun agree on each tensor before they move it. MPI leaves the order of calls to the program, and saves
this time.

## How we measure

- All contenders run in turn, round after round, so that other load on the machine slows all of them alike.
- A figure is the median over the rounds. Tables also have the lowest and the highest round.
- A ratio is one median divided by another. Both medians are in the tables.
- Inside a round, a benchmark repeats each case and takes the median.
- All libraries run with their defaults, and with two ranks on two cores.
- Every program does the same work: `bench/measure.h` times all of them.

The data behind each plot is in `docs/performance/data/`, as JSON.

## The machine

{table(["part", "value"], machine)}
## The versions

{table(["software", "version"], versions)}
## Repeat it

```bash
bench/report
```

It takes at most 15 minutes after its set-up, and needs a machine on which nothing else runs. It writes these pages, and
keeps the figures with their commit. [Examples](../start/examples.md#run-the-benchmarks) has the single benchmarks.

```{{toctree}}
:hidden:
allreduce
training
two-hosts
start
```
"""


def readme_section(part: Part) -> str:
    return f"""{HEADING}

{picture("allreduce-time.svg", "docs/performance/")}
{faster(part)}
{slower_in_short(part)}
More figures: [Performance](docs/performance/index.md). `bench/report` measures all of it again.

"""


def with_section(readme: str, part: Part) -> str:
    """Returns README with its section about performance written anew."""
    section = readme_section(part)
    changed, count = SECTION.subn(lambda _: section, readme)
    if count != 1:
        raise ValueError(f"README.md has {count} sections '{HEADING}'")
    return changed


def pages(parts: Parts) -> dict[str, str]:
    """Returns the text of each page, by its name in docs/performance/."""
    return {
        "index.md": index_page(parts),
        "allreduce.md": allreduce_page(parts["allreduce"]),
        "training.md": training_page(parts["torch"], parts["tensorflow"]),
        "two-hosts.md": two_hosts_page(parts["hosts"]),
        "start.md": start_page(parts["start"], parts["idle"]),
    }
