"""How the costs of a node grow: every curve as a table with ratios to its first point, and as a picture.

    python -m bench.growth [--seconds 1.0] [--only groups,producers] [--pictures docs/explanation/growth]

Compare the ratios and the CPU time: rates and latencies depend on the machine and on its other load. A whole run
takes less than ten minutes; `MAX_SECONDS` ends it between two curves when the machine is too busy for that.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.curves import bytes_moved, connections, groups, normal_client, partitions, recovery
from bench.curves.common import Curve, Tools
from bench.load import raw_kafka
from bench.load.charts import Chart
from bench.load.library import BenchFailed, Library
from bench.load.machine import load_average
from bench.load.raw_amqp import Pump

MAX_SECONDS = 570.0
CURVES: Mapping[str, Callable[[Tools], list[Curve]]] = {
    "partitions-in-use": partitions.in_use,
    "partitions-existing": partitions.existing,
    "partitions-first-use": partitions.first_use,
    "recovery": recovery.after_crash,
    "idle": connections.idle,
    "fan-out": connections.fan_out,
    "groups": groups.groups,
    "event-size": bytes_moved.sizes,
    "producers": connections.producers,
    "second-core": bytes_moved.second_core,
}
NORMAL_CLIENT = "normal-client"


def show(curve: Curve) -> None:
    """A table: one row for each x, each line with its ratio to its own first point."""
    print(f"\n{curve.title} ({curve.y_title})")
    names = list(curve.lines)
    print(f"  {curve.x_title:<48}" + "".join(f"{name:>32}" for name in names))
    xs = sorted({x for points in curve.lines.values() for x, _ in points})
    for x in xs:
        cells = []
        for name in names:
            values = dict(curve.lines[name])
            first = curve.lines[name][0][1]
            cells.append(f"{values[x]:,.2f} ({values[x] / first if first else 0:.2f} x)" if x in values else "")
        print(f"  {x:<48,.0f}" + "".join(f"{cell:>32}" for cell in cells))
    for note in curve.notes:
        print(f"  {note}")
    sys.stdout.flush()


def picture(curve: Curve, folder: Path) -> None:
    """Write the curve as SVG."""
    chart = Chart(
        title=curve.title,
        x_title=curve.x_title,
        y_title=curve.y_title,
        lines=curve.chart_lines(),
        has_log_y=curve.has_log_y,
    )
    chart.write(folder / f"{curve.slug}.svg")


def measure(tools: Tools, names: list[str], pictures: Path | None) -> None:
    """Every curve in turn, then the normal client."""
    began = time.perf_counter()
    for name in names:
        if time.perf_counter() - began > MAX_SECONDS:
            print(f"\n{name}: not measured, the machine is too busy for a run in ten minutes")
            continue
        started = time.perf_counter()
        if name == NORMAL_CLIENT:
            print("\nA normal client during recovery, retention, rebalances and full load")
            for line in normal_client.show(normal_client.measure(tools)):
                print(f"  {line}")
        else:
            for curve in CURVES[name](tools):
                show(curve)
                if pictures is not None:
                    picture(curve, pictures)
        print(f"  [{time.perf_counter() - started:.0f} s]", flush=True)
    print(f"\nwhole run: {time.perf_counter() - began:.0f} s; load average after: {load_average():.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds for the measurement of one point")
    parser.add_argument("--only", default="", help="names of curves, separated by commas")
    parser.add_argument("--pictures", type=Path, help="folder for the SVG files")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [*CURVES, NORMAL_CLIENT]
    if unknown := [name for name in names if name not in CURVES and name != NORMAL_CLIENT]:
        sys.exit(f"no such curve: {', '.join(unknown)}; expected {', '.join([*CURVES, NORMAL_CLIENT])}")
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    print(f"load average before: {load_average():.1f}")
    with contextlib.ExitStack() as stack:
        try:
            kafka, amqp = stack.enter_context(Library(raw_kafka.SOURCE)), stack.enter_context(Pump())
        except BenchFailed as failure:
            sys.exit(f"not measured: {failure}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-growth-")))
        measure(Tools(kafka=kafka, amqp=amqp, folder=folder, seconds=options.seconds), names, options.pictures)


if __name__ == "__main__":
    main()
