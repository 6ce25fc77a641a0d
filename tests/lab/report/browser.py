"""A headless Chromium, driven over the WebDriver protocol with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
]  # fmt: skip
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's name for a reference to an element


def missing() -> str | None:
    """Why there is no browser to test with, or None."""
    if shutil.which("chromedriver") is None:
        return "no chromedriver on this machine (Debian: apt-get install chromium chromium-driver)"
    if shutil.which("chromium") is None and shutil.which("google-chrome") is None:
        return "no Chromium on this machine (Debian: apt-get install chromium chromium-driver)"
    return None


class Browser:
    """One window."""

    def __init__(self, address: str, options: dict[str, Any]) -> None:
        self._address = address
        self._address += "/session/" + self.call("POST", "/session", options)["sessionId"]

    def call(self, verb: str, path: str, body: object | None = None) -> Any:
        data = None if verb == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"}, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {json.load(error)['value']['message'][:500]}") from None

    def open(self, page: Path, *, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of that size; with a touch screen if it is narrow."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)
        self.devtools("Emulation.setTouchEmulationEnabled", enabled=width < 700)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},  # clicks need not wait for scrolling
        ]
        self.devtools("Emulation.setEmulatedMedia", media="", features=features)
        self.call("POST", "/url", {"url": page.resolve().as_uri()})

    def devtools(self, command: str, **options: Any) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": options})

    def run(self, script: str, *values: Any) -> Any:
        """What a JavaScript function body returns."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(values)})

    def find(self, css: str) -> dict[str, str]:
        found: dict[str, str] = self.call("POST", "/element", {"using": "css selector", "value": css})
        return found

    def click(self, css: str) -> None:
        """A real click."""
        self.call("POST", f"/element/{self.find(css)[_ELEMENT]}/click")

    def pointer(self, css: str, *steps: tuple[str, float, float], kind: str = "mouse") -> None:
        """Move a pointer over an element: ("move" | "down" | "up", x, y) as shares of its size, from its top left."""
        box = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]", css)  # fmt: skip
        actions: list[dict[str, Any]] = []
        for what, x, y in steps:
            place = {"x": round(box[0] + x * box[2]), "y": round(box[1] + y * box[3]), "origin": "viewport"}
            actions.append({"type": "pointerMove", "duration": 30, **place})
            if what != "move":
                actions.append({"type": f"pointer{what.capitalize()}", "button": 0})
        source = {"type": "pointer", "id": kind, "parameters": {"pointerType": kind}, "actions": actions}
        self.call("POST", "/actions", {"actions": [source]})

    def keys(self, *keys: str) -> None:
        """Press keys, one after the other, where the focus is."""
        actions = [{"type": what, "value": key} for key in keys for what in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def console(self) -> list[str]:
        """Errors and warnings since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        options = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.run("const d = document.documentElement; return [d.clientWidth, d.scrollHeight]")
            options["clip"] = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        file.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", **options)["data"]))

    def close(self) -> None:
        self.call("DELETE", "")


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with an empty profile, without network."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "driver.log"
        command = [shutil.which("chromedriver") or "chromedriver", "--port=0", f"--log-path={log}"]
        environment = {**os.environ, "no_proxy": "127.0.0.1", "HOME": folder}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as driver:
            try:
                port = _port(driver)
                chrome = {"args": [*FLAGS, f"--user-data-dir={folder}/profile"]}
                wanted = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
                window = Browser(f"http://127.0.0.1:{port}", {"capabilities": {"alwaysMatch": wanted}})
                try:
                    yield window
                finally:
                    window.close()
            finally:
                driver.terminate()
                driver.wait(20)


def _port(driver: subprocess.Popen[str]) -> int:
    """The port that the driver says it listens on."""
    assert driver.stdout is not None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        line = driver.stdout.readline()
        if "started successfully on port" in line:
            return int(line.strip().rstrip(".").split()[-1])
        if not line:
            break
    raise AssertionError("chromedriver did not start")
