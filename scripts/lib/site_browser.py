"""Opens every page of the built site from the disk in chromium: site_browser.py FOLDER [--screenshots PAGE ...].

Each page must load without an error and without a request to another host, its pictures must show, and a narrow screen
must not cut it. The search must find a word. It speaks the DevTools protocol over two pipes, so it needs no driver.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib.tree import finish

WIDE, NARROW = 1400, 400
PATIENCE = 30.0  # seconds for one answer or page
WORD = "coordinator"  # the pages of the internals have it
PICTURES = """Promise.all([...document.images].map(image => image.decode().catch(() => null))).then(
  () => [...document.images].filter(image => !(image.naturalWidth > 0)).map(image => image.getAttribute("src")))"""
TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"
RESULTS = "document.querySelectorAll('#search-results li a').length"


class Browser:
    """A page of a running chromium."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self.session = ""
        self.faults: list[str] = []  # of the page that is open
        self.loaded = False

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._from, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, about: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.faults.append(f"a script fails: {about['exceptionDetails'].get('text')}")
        elif method == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:")):
            self.faults.append(f"asks {about['request']['url']}")
        elif method == "Network.loadingFailed" and not about.get("canceled"):
            self.faults.append(f"cannot load something: {about.get('errorText')}")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self._to, json.dumps(request).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def resize(self, width: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width == NARROW
        )

    def open(self, address: str) -> None:
        self.loaded, self.faults = False, []
        self.call("Page.navigate", url=address)
        while not self.loaded:
            self._message()

    def value(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return result["result"].get("value")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def started() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise RuntimeError("chromium is missing: apt-get install chromium")
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(prefix="distrun-test-browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command = [program, *options, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # The protocol is on descriptors 3 and 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "-", *command]
        process = subprocess.Popen(
            shell, pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            browser = Browser(ours_out, ours_in)
            browser.attach()
            yield browser
        finally:
            process.terminate()
            process.wait(PATIENCE)


def page_faults(browser: Browser, site: Path, page: Path) -> list[str]:
    browser.resize(WIDE)
    browser.open(page.as_uri())
    faults = [f"the picture {source} does not show" for source in browser.value(PICTURES)]
    # The page of the search gets its heading with the results.
    if page.name != "search.html" and not browser.value("document.querySelector('h1, h2') !== null"):
        faults.append("has no heading")
    browser.resize(NARROW)
    if (pixels := browser.value(TOO_WIDE)) > 0:
        faults.append(f"is {pixels} pixels wider than a screen of {NARROW}")
    return [f"{page.relative_to(site)}: {fault}" for fault in faults + browser.faults]


def search_faults(browser: Browser, site: Path) -> list[str]:
    browser.resize(WIDE)
    browser.open(f"{(site / 'search.html').as_uri()}?q={WORD}")
    deadline = time.monotonic() + PATIENCE
    while not browser.value(RESULTS):
        if time.monotonic() > deadline:
            return [f"the search does not find '{WORD}'", *browser.faults]
        time.sleep(0.2)
    return browser.faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--screenshots", nargs="*", default=[], help="pages, as start/cpp.html")
    options = parser.parse_args()
    site = options.site.resolve()
    with started() as browser:
        folder = site.parent / "screenshots"
        for name in options.screenshots:
            folder.mkdir(exist_ok=True)
            for width in (WIDE, NARROW):
                browser.resize(width)
                browser.open((site / name).as_uri())
                browser.screenshot(folder / f"{Path(name).with_suffix('').as_posix().replace('/', '-')}-{width}.png")
        if options.screenshots:
            return
        faults = [fault for page in sorted(site.rglob("*.html")) for fault in page_faults(browser, site, page)]
        faults += search_faults(browser, site)
    finish("browser", faults)


if __name__ == "__main__":
    main()
