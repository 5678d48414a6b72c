"""What `scripts/browser` does: the page of `vstream status --serve` in a real browser, beside a lab and with many streams."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.async_api import Browser, CDPSession, Page, async_playwright, expect

from tests.cli.views.test_verdict_page import eventful
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.cli.views import status_page, verdict_page
from vstream.cli.views.status_page import StatusHistory
from vstream.cli.web import Feed, Site, WebPage, format_event, serve
from vstream.lab.state import lab_directory
from vstream.runner.events import ProgressWriter, StepBegan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ROOT = Path(__file__).resolve().parent.parent
VSTREAM = [str(ROOT / ".venv/bin/python"), "-m", "vstream"]
TOPOLOGY = str(ROOT / "examples/three-regions.yaml")
LAB = "browser"
PATIENCE = 60_000
"""Milliseconds until the page shows what has happened to the lab."""
SIZES = ((1, 3), (100, 3), (1_000, 3), (10, 30), (1_000, 30))
"""Streams and regions."""
LOOKS = 20
WORST_FRAME = """async () => {
  let worst = 0, last = performance.now();
  const end = last + 4000;
  while (last < end) {
    const now = await new Promise(requestAnimationFrame);
    worst = Math.max(worst, performance.now() - last);
    last = performance.now();
  }
  return worst;
}"""


def main() -> int:
    """Exits with 1 if the page does not show what the lab does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        os.environ["VSTREAM_STATE_DIR"] = state
        try:
            asyncio.run(check_pages(arguments.chromium, arguments.out))
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


async def check_pages(chromium: str, out: Path) -> None:
    """Everything, one after the other, in one browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for streams, regions in SIZES:
            await measure(browser, streams, regions, out)
        await check_claims(browser, out)
        await replay(browser, out)
        with lab_up():
            await follow_lab(browser, out)
        await browser.close()


async def check_claims(browser: Browser, out: Path) -> None:
    """What was not seen is not shown as well, names are text whatever they are, and ten regions have names that can be read."""
    name = "<img src=x onerror=alert(1)>"
    content = json.loads(make_event(3, 10, 1).partition("data: ")[2])
    content |= {"topology": name, "places": [*content["places"], "stretch"], "at": 1_800_000_600}
    content["problems"] = [{"about": name, "text": f"`{name}` and `{name}", "code": "VD407"}]
    content["streams"][0] |= {"name": name, "leaders": [name]}
    content["regions"][0]["direct_get"] = {"works": 0, "of": 3, "unknown": 3}
    history = json.dumps([[1_800_000_000, "ok", 0, 0]])
    feed = Feed(lambda: format_event("history", history) + format_event("status", json.dumps(content)))
    async with serving(feed) as address, open_page(browser, address, 400, "dark") as page:
        await expect(page.locator("#problems")).to_contain_text(f"{name}: {name} and `{name}")
        drawn = page.locator("#map svg")
        await expect(drawn).to_have_attribute("aria-label", re.compile("region-00: not known, region-01: well"))
        well = len(content["regions"]) - 1  # neither the stretch cluster nor what is not known
        assert await drawn.locator("text", has_text="✓").count() == well, (
            "the stretch cluster, or what is not known, is well"
        )
        await expect(page.locator("#history")).to_contain_text("not known for 10 min")
        assert await page.evaluate("document.images.length") == 0, "a name became HTML"
        await page.screenshot(path=out / "claims.png", full_page=True)
    print("claims: what was not seen is not shown as well, and names stay text")


async def replay(browser: Browser, out: Path) -> None:
    """The page of a verdict is played: while a region is down it says so, and at the end nothing waits."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "verdict.html"
        file.write_text(verdict_page.render_page(judge_capture(eventful().write(Path(directory)))), encoding="utf-8")
        for width, scheme in ((400, "dark"), (1200, "light")):
            async with open_page(browser, file.as_uri(), width, scheme) as page:
                moment, happening = page.locator("#moment"), page.locator("#happening")
                await moment.focus()
                await page.keyboard.press("ArrowRight")
                await expect(happening).to_contain_text("kill-region west")
                await expect(page.locator('#replay [data-region="west"]')).to_have_class(re.compile("faulted"))
                await page.locator("#play").click()
                await expect(page.locator("#play")).to_have_text("Play", timeout=PATIENCE)
                assert await moment.input_value() == await moment.get_attribute("max"), "it did not play to the end"
                too_wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert too_wide <= 0, f"{width} px: the verdict is {too_wide} px wider"
                await page.screenshot(path=out / f"verdict-{width}-{scheme}.png", full_page=True)
    print("verdict: played to its end, with the fault named while it was active")


@contextmanager
def lab_up() -> Iterator[None]:
    vstream("lab", "up", TOPOLOGY, "--lab", LAB)
    try:
        vstream("apply", TOPOLOGY, "--lab", LAB, "--yes")
        yield
    finally:
        vstream("lab", "down", "--lab", LAB, "--purge")


def vstream(*arguments: str) -> None:
    subprocess.run([*VSTREAM, *arguments], check=True, stdout=subprocess.DEVNULL)


@asynccontextmanager
async def open_page(browser: Browser, address: str, width: int, scheme: Any = "light") -> AsyncIterator[Page]:
    context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = await context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if not request.url.startswith(address) else None)
    await page.goto(address)
    yield page
    await context.close()
    assert not faults, f"errors, or requests to somebody else: {faults}"


async def follow_lab(browser: Browser, out: Path) -> None:
    """A region is killed and comes back, and the console ends: what the page says of it."""
    command = [*VSTREAM, "status", TOPOLOGY, "--serve", "--lab", LAB, "--no-browser", "--every", "0.5"]
    variables = {**os.environ, "COLUMNS": "200"}
    console = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE, env=variables)
    assert console.stderr is not None
    line = (await console.stderr.readuntil(b"/metrics")).decode()
    address = next(word for word in line.split() if word.startswith("http://"))
    async with open_page(browser, address, 1600) as page:
        verdict, faults = page.locator("#verdict"), page.locator("#faults")
        await expect(verdict).to_contain_text("OK", timeout=PATIENCE)
        await take_screenshots(browser, address, out, "well")
        await asyncio.to_thread(vstream, "chaos", "kill-region", "west", "--topology", TOPOLOGY, "--lab", LAB)
        await expect(verdict).to_contain_text("DEGRADED", timeout=PATIENCE)
        await expect(faults).to_contain_text("kill-region west")
        await expect(page.locator("#problems")).to_contain_text("west")
        await expect(page.locator("#history")).to_contain_text("The bar shows the verdict.")  # what waits is not known
        scenario = ProgressWriter(lab_directory(LAB), "region-flap", 4)
        scenario.record_event(StepBegan(at=0, number=2, total=4, name=None, description="kill-region west"))
        await expect(page.locator("#scenario")).to_contain_text("step 2 of 4: kill-region west", timeout=PATIENCE)
        await take_screenshots(browser, address, out, "killed")
        await asyncio.to_thread(vstream, "chaos", "heal", "--lab", LAB)
        await asyncio.to_thread(vstream, "repair", "sources", TOPOLOGY, "--lab", LAB)
        await expect(verdict).to_contain_text("OK", timeout=PATIENCE)
        await expect(page.locator("#faults-section")).to_be_hidden()
        await page.keyboard.press("Tab")
        focused = await page.evaluate("document.activeElement.tagName")
        assert focused != "BODY", "the keyboard reaches nothing"
        console.terminate()
        await console.communicate()
        await expect(verdict).to_contain_text("UNKNOWN", timeout=PATIENCE)
        await expect(page.locator("#lost")).to_contain_text("does not answer")
    print("lab: well, a region killed, healed, the console ended: the page said so each time")


async def take_screenshots(browser: Browser, address: str, out: Path, name: str) -> None:
    for width in (400, 800, 1600):
        for scheme in ("light", "dark"):
            async with open_page(browser, address, width, scheme) as page:
                await expect(page.locator("#streams tbody tr").first).to_be_attached()
                too_wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert too_wide <= 0, f"{width} px: the page is {too_wide} px wider"
                await page.screenshot(path=out / f"{name}-{width}-{scheme}.png", full_page=True)


async def measure(browser: Browser, streams: int, regions: int, out: Path) -> None:
    """How long the worst frame takes while everything changes with each look, and what memory it takes."""
    history = StatusHistory()
    events = [make_event(streams, regions, look) for look in range(LOOKS)]
    feed = Feed(lambda: format_event("history", history.as_json()) + events[0])
    async with serving(feed) as address, open_page(browser, address, 1600) as page:
        await expect(page.locator("#streams tbody tr").first).to_be_attached()
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = await read_metrics(session)
        trace = await start_trace(session)
        watching = asyncio.create_task(page.evaluate(WORST_FRAME))
        for event in events:
            feed.publish(event)
            await asyncio.sleep(0.2)
        worst = await watching
        after = await read_metrics(session)
        longest = await read_longest_task(session, trace)
        await session.send("HeapProfiler.collectGarbage")
        heap = (await read_metrics(session))["JSHeapUsedSize"] / 1e6
        await page.screenshot(path=out / f"{streams}-streams-{regions}-regions.png", full_page=True)
    size, used = len(events[0]) / 1e3, (after["TaskDuration"] - before["TaskDuration"]) * 1e3 / LOOKS
    print(
        f"{streams:5,} streams, {regions:2} regions: event {size:6,.0f} kB, {used:5.1f} ms of CPU a look,"
        f" longest frame {worst:5.0f} ms, longest task {longest:3.0f} ms of CPU, heap {heap:4.1f} MB"
    )


@asynccontextmanager
async def serving(feed: Feed) -> AsyncIterator[str]:
    """The address of the page, with what *feed* says."""
    pages = {
        path: WebPage(status_page.TYPES[name.rpartition(".")[2]], partial(status_page.read_file, name))
        for path, name in status_page.FILES.items()
    }
    async with serve("127.0.0.1", 0, Site(pages, {"/events": feed})) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def start_trace(session: CDPSession) -> list[dict[str, Any]]:
    """What Chromium does from now on; the events come in until the trace ends."""
    trace: list[dict[str, Any]] = []
    session.on("Tracing.dataCollected", lambda part: trace.extend(part["value"]))
    await session.send("Tracing.start", {"categories": "toplevel", "transferMode": "ReportEvents"})
    return trace


async def read_longest_task(session: CDPSession, trace: list[dict[str, Any]]) -> float:
    """Milliseconds of CPU of the longest task of the page's main thread: on a busy machine, a frame waits for its turn, too."""
    is_complete = asyncio.Event()
    session.on("Tracing.tracingComplete", lambda _: is_complete.set())
    await session.send("Tracing.end")
    await is_complete.wait()
    names = {(each["pid"], each["tid"]): each["args"]["name"] for each in trace if each["name"] == "thread_name"}
    tasks = [each for each in trace if names.get((each["pid"], each["tid"])) == "CrRendererMain"]
    return float(max(each.get("tdur", 0) for each in tasks)) / 1e3


async def read_metrics(session: CDPSession) -> dict[str, float]:
    """What Chromium counts of the page's main thread; durations are CPU seconds."""
    return {each["name"]: each["value"] for each in (await session.send("Performance.getMetrics"))["metrics"]}


def make_event(streams: int, regions: int, look: int) -> str:
    """A status in which something is different with each look, in the fields of `status_page.format_status`."""
    places = [f"region-{number:02}" for number in range(regions)]
    whole = {"works": streams, "of": streams, "unknown": 0}
    content = {
        "topology": "many", "at": 1_800_000_000 + look, "every": 0.2, "verdict": "degraded", "places": places,
        "regions": [
            {"name": place, "servers": 3, "servers_reached": 3, "problem": None, "publish": whole, "direct_get": whole,
             "existing_consumers": whole, "new_consumers": True}
            for place in places
        ],
        "cells": [
            {"origin_place": origin, "reader_place": reader, "state": "behind" if (look + index) % 7 else "ok",
             "stream": "s0", "pending": look * index, "oldest_pending_age_s": float(look), "lossy_in_s": None}
            for index, origin in enumerate(places)
            for reader in places
        ],
        "problems": [{"about": place, "text": f"look {look}", "code": "VD407"} for place in places],
        "problem_count": regions, "unknown": [], "unknown_count": 0, "faults": [], "scenario": None,
        "streams": [
            {"name": f"s{number}", "state": "behind" if (look + number) % 3 else "ok", "pending": look * number,
             "age": float(look), "worst": f"{places[0]} → {places[-1]}", "more_leaders": max(0, regions - 5),
             "leaders": [f"{place}: {place}-1" for place in places[:5]]}
            for number in range(streams)
        ],
    }  # fmt: skip
    return format_event("status", json.dumps(content, separators=(",", ":")))


if __name__ == "__main__":
    sys.exit(main())
