"""Checks the built site: site_check.py FOLDER. Links and anchors exist, no page loads anything from another host, and
every public name of the front ends has an entry."""

from __future__ import annotations

import ast
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib.tree import ROOT, finish

LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
STYLE_URL = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"](?:https?:)?//")
# The page of each module, in docs/reference/api.
MODULES = {
    "distrun": "core",
    "distrun.numpy": "numpy",
    "distrun.torch": "torch",
    "distrun.torch.c10d": "torch-c10d",
    "distrun.tensorflow": "tensorflow",
    "distrun.keras": "keras",
    "distrun.jax": "jax",
    "distrun.mxnet": "mxnet",
}


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADS and given.get(LOADS[tag]) and given.get("rel") != "canonical":
            self.loads.append(given[LOADS[tag]])


def is_remote(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https")


def link_faults(pages: dict[Path, Page]) -> list[str]:
    """Returns local links whose file or anchor is missing, and everything that is loaded from elsewhere."""
    faults = []
    for path, page in pages.items():
        faults += [f"{path}: loads {address} from another host" for address in page.loads if is_remote(address)]
        for address in [*page.links, *page.loads]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not goal.is_file():
                faults.append(f"{path}: links to {address}, which does not exist")
            elif parts.fragment and goal in pages and unquote(parts.fragment) not in pages[goal].ids:
                faults.append(f"{path}: links to {address}, and the page has no such anchor")
    return faults


def values_of(tree: ast.Module, names: tuple[str, ...]) -> list[ast.List | ast.Tuple]:
    """Returns the lists that the module assigns to one of the names."""
    assigned = [(node.targets[0], node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assigned += [(node.target, node.value) for node in tree.body if isinstance(node, ast.AnnAssign) and node.value]
    return [
        value
        for goal, value in assigned
        if isinstance(goal, ast.Name) and goal.id in names and isinstance(value, ast.List | ast.Tuple)
    ]


def names_of(module: str, seen: dict[str, list[str]]) -> list[str]:
    """Returns the names in the module's __all__, without importing the module."""
    if module in seen:
        return seen[module]
    _, *parts = module.split(".")
    # The core is in bindings/python/distrun, the front ends in frameworks.
    front = bool(parts) and (ROOT / "frameworks" / parts[0]).is_dir()
    place = ROOT / "frameworks" if front else ROOT / "bindings/python/distrun"
    place = place.joinpath(*parts)
    tree = ast.parse((place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text())
    found: list[str] = []
    for value in values_of(tree, ("__all__", "NAMES")):
        for element in value.elts:
            if isinstance(element, ast.Constant):
                found.append(str(element.value))
            elif isinstance(element, ast.Starred):
                found += names_of(f"distrun.{ast.unparse(element.value).split('.')[0]}", seen)
    seen[module] = found
    return found


def api_faults(site: Path, pages: dict[Path, Page]) -> list[str]:
    faults = []
    seen: dict[str, list[str]] = {}
    for module, name in MODULES.items():
        path = site / "reference/api" / f"{name}.html"
        ids = pages[path].ids if path in pages else set()
        names = names_of(module, seen)
        if not names:
            faults.append(f"{module}: __all__ is not found")
        for one in names:
            if not {f"{module}.{one}", f"module-{module}.{one}"} & ids:
                faults.append(f"{path}: has no entry for {module}.{one}")
    return faults


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    faults = link_faults(pages) + api_faults(site, pages)
    for style in site.rglob("*.css"):
        if STYLE_URL.search(style.read_text()):
            faults.append(f"{style}: loads from another host")
    finish("site", [fault.replace(f"{site}/", "") for fault in faults])


if __name__ == "__main__":
    main()
