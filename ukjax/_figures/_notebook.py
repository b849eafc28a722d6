"""Figures and films of Matplotlib that notebooks show as such, without a magic line. Loaded where they are drawn."""

import io

from matplotlib import rc_context
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that shows itself."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


class Film(FuncAnimation):
    """An animation that shows itself, with a slider."""

    def _repr_html_(self) -> str:
        with rc_context({"savefig.dpi": 72}):  # as films in files: half the bytes of the default
            return self.to_jshtml()
