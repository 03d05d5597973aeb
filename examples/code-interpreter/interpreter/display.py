"""What the Python kernel shows beside what IPython does: charts, data frames, and images.

    install(shell)
"""

import datetime
import functools
import importlib.abc
import importlib.machinery
import json
import math
import sys

from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets import ObjectName, Unicode

from limits import CELLS_MAX, OUTPUT_MAX, RESULT_MAX, beyond, left_out, size_of

# As the server knows them.
CHART = "application/vnd.interpreter.chart+json"
DATA = "application/vnd.interpreter.data+json"


def plain(value):
    """value as JSON can say it."""
    if hasattr(value, "item"):  # NumPy's
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime.date, datetime.time)):
        return None if value != value else value.isoformat()
    if isinstance(value, dict):
        return {str(plain(k)): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if value != value else str(value)


class Chart(BaseFormatter):
    """The numbers that a figure of Matplotlib shows."""

    format_type = Unicode(CHART)
    print_method = ObjectName("_repr_chart_")
    _return_type = (dict,)

    def __call__(self, obj):
        figures = sys.modules.get("matplotlib.figure")  # else there is none
        if figures is None or not isinstance(obj, figures.Figure):
            return super().__call__(obj)
        from e2b_charts import chart_figure_to_dict

        try:
            return plain(chart_figure_to_dict(obj)) or None
        except Exception:  # there are figures that it does not know
            return None


class Data(BaseFormatter):
    """The columns of a data frame."""

    format_type = Unicode(DATA)
    print_method = ObjectName("_repr_data_")
    _return_type = (dict,)

    def __call__(self, obj):
        pandas = sys.modules.get("pandas")
        if pandas is None or not isinstance(obj, pandas.DataFrame):
            return super().__call__(obj)
        if obj.size > CELLS_MAX:
            sys.stderr.write(f"the data of a frame of {obj.size} cells is left out: at most {CELLS_MAX} are sent\n")
            return None
        return plain(obj.to_dict(orient="list"))


class Structure(JSONFormatter):
    """Lists and dictionaries, which are shown as JSON too."""

    def __call__(self, obj):
        if not isinstance(obj, (list, dict)):
            return super().__call__(obj)
        try:
            return json.loads(json.dumps(plain(obj), allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            return None


def within(bundle):
    """The formats of a result that are not too large; what is left out is said."""
    kept = {}
    for name, value in bundle.items():
        size = size_of(value)
        if size > RESULT_MAX:
            sys.stderr.write(left_out(name, size, RESULT_MAX))
        else:
            kept[name] = value
    return kept or {"text/plain": "what was to be shown is too large"}


class Bound:
    """Bounds what one execution writes; what is more is dropped where it arises."""

    def __init__(self, *streams):
        self.left = OUTPUT_MAX
        self.say = sys.stderr.write
        for stream in streams:
            stream.write = self.bounded(stream.write)

    def renew(self, *_):
        self.left = OUTPUT_MAX

    def bounded(self, write):
        @functools.wraps(write)
        def write_some(text):
            if not isinstance(text, str):
                return write(text)  # which says what is wrong
            if self.left > 0:
                write(text[: self.left])
                self.left -= len(text)
                if self.left <= 0:
                    self.say("\n" + beyond(OUTPUT_MAX))
            return len(text)

        return write_some


class Pillow(importlib.abc.MetaPathFinder):
    """Lets images of Pillow be displayed where they are shown or saved: there is no
    screen. It waits for the import, which takes time."""

    def find_spec(self, name, path, target=None):
        if name != "PIL.Image":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                displayed(module.Image)

            spec.loader.exec_module = exec_module
        return spec


def displayed(image):
    from IPython.display import display

    save = image.save

    @functools.wraps(save)
    def save_shown(self, fp, format=None, **options):
        save(self, fp, format, **options)
        if isinstance(fp, str):
            display(self)

    image.save = save_shown
    image.show = lambda self, *_, **__: display(self)


def install(shell):
    formatter = shell.display_formatter
    for mime, kind in ((CHART, Chart), (DATA, Data), ("application/json", Structure)):
        formatter.formatters[mime] = kind(parent=formatter)
    publish, write = shell.display_pub.publish, shell.displayhook.write_format_data
    shell.display_pub.publish = lambda data, *a, **k: publish(within(data), *a, **k)
    shell.displayhook.write_format_data = lambda data, *a, **k: write(within(data), *a, **k)
    shell.events.register("pre_execute", Bound(sys.stdout, sys.stderr).renew)
    sys.meta_path.insert(0, Pillow())
