"""A headless Chromium that is spoken to through two pipes: opens pages, and notes what went wrong on them."""

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any, Self

FLAGS = (
    "--headless",
    "--no-sandbox",  # which root can't have
    "--disable-gpu",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find() -> str | None:
    """Return the path of a Chromium or Chrome, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Navigated(RuntimeError):
    """The page that was spoken to gave way to another one."""


class Chromium:
    """One page of a browser; `with` ends it.

    Attributes:
        wrong: what the page now open did wrong: script errors, requests that failed or left this machine, console errors.
    """

    def __init__(self, program: str, profile: os.PathLike[str], patience: float = 30) -> None:
        self.wrong: list[str] = []
        self._patience, self._number, self._session = patience, 0, ""
        self._loaded: set[str] = set()
        self._buffer = b""
        theirs_in, ours_out = _pipe()
        ours_in, theirs_out = _pipe()
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", command, program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        os.set_blocking(self._in, False)

    def __enter__(self) -> Self:
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda said: said.get("id") == self._number, method)
        if "error" in answer:
            kind = Navigated if "navigated" in answer["error"]["message"] else RuntimeError
            raise kind(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, address: str) -> None:
        """Open a page and wait until all of it is loaded."""
        self.wrong = []
        loader = self.call("Page.navigate", url=address)["loaderId"]
        if loader not in self._loaded:  # of this page: the one before may have led to another, whose end comes now
            self._until(lambda said: loader in self._loaded, address)

    def value(self, expression: str) -> Any:
        """Return the value of an expression of the page's JavaScript, or of the page that it leads to."""
        end = time.monotonic() + self._patience
        while True:
            try:
                result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
                break
            except Navigated:
                if time.monotonic() > end:
                    raise
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def soon(self, expression: str) -> bool:
        """Tell whether an expression becomes true within the browser's patience."""
        end = time.monotonic() + self._patience
        while time.monotonic() < end:
            if self.value(expression):
                return True
            time.sleep(0.02)
        return False

    def _until(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        end = time.monotonic() + self._patience
        while True:
            said = self._message(end, what)
            self._note(said)
            if wanted(said):
                return said

    def _message(self, end: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if time.monotonic() > end:
                raise TimeoutError(f"Chromium said nothing to {what} in {self._patience} s")
            try:
                piece = os.read(self._in, 1 << 20)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            if not piece:
                raise RuntimeError(f"Chromium ended at {what}")
            self._buffer += piece
        first, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def _note(self, said: dict[str, Any]) -> None:
        event, about = said.get("method"), said.get("params", {})
        if event == "Page.lifecycleEvent" and about["name"] == "load":
            self._loaded.add(about["loaderId"])
        elif event == "Runtime.exceptionThrown":
            self.wrong.append(f"script: {about['exceptionDetails']}")
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
            self.wrong.append(f"console: {about['args']}")
        elif event == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.wrong.append(f"log: {about['entry']['text']} {about['entry'].get('url', '')}")
        elif event == "Network.loadingFailed" and not about.get("canceled"):
            self.wrong.append(f"failed: {about['errorText']} ({about.get('type')})")
        elif event == "Network.requestWillBeSent" and not about["request"]["url"].startswith(
            ("file:", "data:", "about:")
        ):
            self.wrong.append(f"leaves this machine: {about['request']['url']}")


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are numbered from 10 on, so that 3 and 4 are free for the browser."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
