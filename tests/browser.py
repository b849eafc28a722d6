"""A headless Chromium that opens a page: what it shows, what it asks the network for, and what it complains of."""

import base64
import contextlib
import io
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Software rendering, so that a machine without a GPU or a screen shows what others do; and nothing from the network.
FLAGS = """
    --headless --no-sandbox --disable-gpu --use-angle=swiftshader --enable-unsafe-swiftshader --disable-quic
    --no-first-run --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars
    --window-size=1200,800 --remote-debugging-port=0
"""


SIZE = "(x => [x.width, x.height])(document.querySelector('canvas').getBoundingClientRect())"


class Page:
    """A page that is open, by the browser's own protocol."""

    def __init__(self, address: str):
        from websockets.sync.client import connect

        self._socket = connect(address, max_size=None)
        self._numbers = itertools.count(1)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            said = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(said["request"]["url"])
            elif message["method"] == "Runtime.exceptionThrown":
                self.complaints.append(said["exceptionDetails"]["text"])

    def evaluate(self, expression: str) -> Any:
        return self("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self) -> np.ndarray:
        """What the scene's canvas shows, without messages to the user, (height, width, 3) in 0 to 255."""
        self.evaluate("document.querySelectorAll('[class*=Notification] button').forEach(x => x.click())")
        width, height = self.evaluate(SIZE)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self("Page.captureScreenshot", format="png", clip=clip)["data"]
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(found))).convert("RGB"))

    def until_drawn(self, seconds: float = 120.0) -> np.ndarray:
        """A picture of the scene, which appears gradually: when its colours no longer change."""
        end, before = time.monotonic() + seconds, np.zeros(1)
        while time.monotonic() < end:
            if self.evaluate("document.querySelector('canvas') !== null"):
                picture = self.picture()
                colours = coloured(picture)
                if colours.sum() > 300 and np.mean(colours != before) < 1e-3:
                    return picture
                before = colours
            time.sleep(1.0)
        raise TimeoutError(f"nothing is drawn; {self.complaints}")


def coloured(picture: np.ndarray) -> np.ndarray:
    """Which pixels are neither white nor grey, as grids, shadows and letters are."""
    return np.ptp(picture.astype(int), axis=2) > 50


@contextlib.contextmanager
def opened(address: str, folder: Path) -> Iterator[Page]:
    """Opens a page in a browser of its own, which keeps what it must in a folder that is empty."""
    command = [str(CHROMIUM), *FLAGS.split(), f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told = folder / "DevToolsActivePort"
        for _ in range(300):
            if told.exists() and told.read_text().count("\n"):
                break
            time.sleep(0.1)
        port = told.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as listed:
            (tab,) = [x for x in json.load(listed) if x["type"] == "page"]
        page = Page(tab["webSocketDebuggerUrl"])
        page("Page.navigate", url=address)
        yield page
    finally:
        process.terminate()
        process.wait(timeout=20)
