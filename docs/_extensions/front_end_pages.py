"""The directive `{front-end} MODULE`: an entry for each public name of a module, in groups.

```{front-end} distrun.torch
:part: own
```
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

CORE = "distrun"
# What a value without a docstring is.
VALUES = {
    "Average": "Reduces to the average over the ranks.",
    "Sum": "Reduces to the sum over the ranks.",
    "Adasum": "Horovod's Adasum. It is not supported, and using it raises an error that says so.",
    "Min": "Reduces to the smallest value.",
    "Max": "Reduces to the largest value.",
    "Product": "Reduces to the product over the ranks.",
    "global_process_set": "The process set of all ranks of the job.",
    "elastic": "Stands for Horovod's elastic module. Every use of it raises an error that says what to do instead.",
}


def is_error(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, BaseException)


def part_of(name: str, found: Any) -> str:
    """Returns the group that a name belongs to: own, shared, errors or values."""
    if is_error(found):
        return "errors"
    if name in VALUES:
        return "values"
    return "shared" if name in importlib.import_module(CORE).__all__ else "own"


def entry(module: str, name: str, found: Any) -> list[str]:
    """Returns the lines of reStructuredText for one name."""
    if name in VALUES:
        return [f".. py:data:: {name}", f"   :module: {module}", "", f"   {VALUES[name]}", ""]
    if isinstance(found, ModuleType):
        return [f".. automodule:: {module}.{name}", "   :members:", ""]
    if inspect.isclass(found):
        return [f".. autoclass:: {module}.{name}", "   :members:", "   :show-inheritance:", ""]
    return [f".. autofunction:: {module}.{name}", ""]


class FrontEnd(SphinxDirective):
    required_arguments = 1
    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {"part": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        loaded = importlib.import_module(module)
        names = [(name, getattr(loaded, name)) for name in set(loaded.__all__)]
        chosen = [pair for pair in names if part_of(*pair) == self.options["part"]]
        # Functions first, classes then, modules last; each in the order of the alphabet.
        chosen.sort(key=lambda pair: (isinstance(pair[1], ModuleType), inspect.isclass(pair[1]), pair[0].lower()))
        lines = [line for name, found in chosen for line in entry(module, name, found)]
        node = nodes.container()
        # The page is Markdown, and autodoc writes reStructuredText.
        text = StringList(["````{eval-rst}", *lines, "````"], source=self.get_source_info()[0])
        self.state.nested_parse(text, self.content_offset, node)
        return node.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("front-end", FrontEnd)
    return {"parallel_read_safe": True}
