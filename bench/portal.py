"""The portal with many hubs: load time of pages, and the cost of an open page.

    python -m bench.portal [--hubs 1000] [--partitions 32] [--seconds 20] [--rounds 3]

A real node in memory and a real browser (Chromium by Playwright). Load time is from the request to a page that is drawn
and connected, for every page after the first, which also loads the library. Cost is the processor time of the node's
process while a page is open, less what it takes with no page open, as a part of one core; rounds alternate, and the
median is shown. An open page is pushed to once a second.
"""

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from bench.load.machine import cpu_seconds, load_average
from playwright.sync_api import BrowserContext, Page, sync_playwright

from hubmere.settings import HubSetting
from hubmere.testing import Node

# The aims of the project for the portal.
AIM_LOAD_S = 1.0
AIM_CORE = 0.01
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_CONNECTED = "() => window.socket && window.socket.connected"
_LOADS = 3
# The state of a closed tab is dropped after its reconnect time.
_FORGOTTEN_SECONDS = 12.0


def pages(hub: str) -> dict[str, str]:
    """Every page by its name."""
    return {
        "overview": "",
        "hub": f"/hub?hub={hub}",
        "explorer": f"/explorer?hub={hub}",
        "groups": "/groups",
        "processors": "/processors",
        "scale": "/scale",
        "capture": "/capture",
        "access": "/access",
        "roles": "/roles",
        "network": "/network",
        "recovery": "/recovery",
        "links": "/links",
        "audit": "/audit",
    }


@contextmanager
def signed_in(node: Node) -> Iterator[BrowserContext]:
    """A browser with the administrator's cookie."""
    path = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        raise SystemExit("no Chromium on this machine: `make browser` installs it")
    origin = _origin(node)
    answer = httpx.post(
        f"{origin}/portal/sign-in",
        data={"credential": node.admin_token},
        headers={"Origin": origin},
        timeout=60,
    )
    [(name, value)] = answer.cookies.items()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(60_000)
        context.add_cookies([{"name": name, "value": value, "domain": "localhost", "path": "/portal"}])
        yield context
        browser.close()


def _origin(node: Node) -> str:
    return f"http://localhost:{node.http.rpartition(':')[2]}"


def load_seconds(page: Page, node: Node, path: str) -> float:
    """From the request to a page that is drawn and connected."""
    began = time.perf_counter()
    page.goto(f"{_origin(node)}/portal/n/{node.namespace}{path}", wait_until="domcontentloaded")
    page.locator("[role=heading][aria-level='1']").wait_for()
    page.wait_for_function(_CONNECTED)
    return time.perf_counter() - began


def core_part(node: Node, seconds: float) -> float:
    """Processor time of the node for a while, as a part of one core."""
    before, began = cpu_seconds(node.pid), time.perf_counter()
    time.sleep(seconds)
    return (cpu_seconds(node.pid) - before) / (time.perf_counter() - began)


def measure_loads(context: BrowserContext, node: Node, hub: str) -> bool:
    """Show the load time of every page; whether all are within the aim."""
    page = context.new_page()
    print(f"first page, library and all: {load_seconds(page, node, ''):.2f} s")
    slowest = 0.0
    for name, path in pages(hub).items():
        took = statistics.median(load_seconds(page, node, path) for _ in range(_LOADS))
        slowest = max(slowest, took)
        print(f"  {name:<10} {took:6.2f} s")
    page.close()
    return slowest <= AIM_LOAD_S


def measure_cost(context: BrowserContext, node: Node, hub: str, seconds: float, rounds: int) -> bool:
    """Show what each open page costs the node; whether the overview is within the aim."""
    is_met = True
    # The pages of the measurement before are forgotten first.
    time.sleep(_FORGOTTEN_SECONDS)
    for name in ("overview", "hub", "links"):
        closed, opened = [], []
        for _ in range(rounds):
            closed.append(core_part(node, seconds / 2))
            page = context.new_page()
            load_seconds(page, node, pages(hub)[name])
            # The sizes of the visible hubs are computed in the first seconds, once.
            time.sleep(3)
            opened.append(core_part(node, seconds))
            page.close()
            time.sleep(_FORGOTTEN_SECONDS)
        cost = statistics.median(opened) - statistics.median(closed)
        is_met = is_met and (name != "overview" or cost <= AIM_CORE)
        print(f"  {name:<10} {cost:7.2%} of a core (closed {statistics.median(closed):.2%})")
    return is_met


def main() -> int:
    """Measure, and say whether the aims are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hubs", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    hubs = [HubSetting(name=f"hub-{number:04}", partition_count=given.partitions) for number in range(given.hubs)]
    print(f"{given.hubs} hubs with {given.partitions} partitions; load average {load_average():.1f}")
    with Node(hubs=hubs, settings={"memory": True, "as": "unlimited"}) as node, signed_in(node) as context:
        is_fast = measure_loads(context, node, hubs[0].name)
        is_calm = measure_cost(context, node, hubs[0].name, given.seconds, given.rounds)
    words = {True: "met", False: "MISSED"}
    print(f"aim: every page within {AIM_LOAD_S:g} s: {words[is_fast]}")
    print(f"aim: an open overview within {AIM_CORE:.0%} of a core: {words[is_calm]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
