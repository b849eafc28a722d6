"""A page that a browser on this machine can open while the program goes on."""

import html
import threading
from pathlib import Path
from typing import Any, final

from .._misc._errors import InputError
from .._misc._files import as_path, replacing


def write_page(text: str, path: str | Path) -> Path:
    """Writes a page to a file."""
    path = as_path("path", path)
    if path.suffix != ".html":
        raise InputError(f"cannot write a view to '{path}': the name must end in .html.")
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


@final
class View:
    """Runs as a page for browsers, served from this process until it is closed or the process ends; made by `view`.

    In notebooks it shows itself. It is a context manager, which closes it.

    - `address`: where a browser on this machine finds it.
    """

    def __init__(self, text: str, port: int):
        import http.server

        self._text = text
        page = text.encode()

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == "/" else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                if self.path == "/":
                    self.wfile.write(page)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        try:
            # For this machine alone: what a program simulates is not for all of a network to see.
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answer)
        except (OSError, OverflowError) as error:
            raise InputError(f"port {port} cannot be used: {error}.") from error
        self._closed = threading.Event()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def save(self, path: str | Path) -> Path:
        """Writes the page as one file that needs no network.

        **Arguments:**

        - `path`: a name that ends in .html.

        **Returns:** the path. **Raises:** `InputError` where it cannot be written.
        """
        return write_page(self._text, path)

    def wait(self) -> None:
        """Returns when the view is closed, or at Ctrl-C, which closes it: for scripts that would end otherwise."""
        try:
            self._closed.wait()
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Stops serving; browsers keep what they show."""
        if not self._closed.is_set():
            self._closed.set()
            self._server.shutdown()
            self._server.server_close()

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *of_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"View at {self.address}" + (", closed" if self._closed.is_set() else "")

    def _repr_html_(self) -> str:
        page = html.escape(self._text, quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="480" style="border:1px solid #ddd"></iframe>'
