"""The configuration of Sphinx. `scripts/docs` builds the site."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "distrun"
author = "the authors of distrun"
copyright = author
release = re.findall(r'^version = "(.+)"', (HERE.parent / "pyproject.toml").read_text(), re.MULTILINE)[0]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_design",
    "sphinx_copybutton",
    "breathe",
    "front_ends",
    "front_end_pages",
]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
root_doc = "index"
# The pages directly in docs/ are older than the site; their content moves into its folders.
exclude_patterns = ["plan", "_*"]

# They would make a dash of the two hyphens of an option.
smartquotes = False

html_theme = "furo"
html_title = f"distrun {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
# Summaries of results are fetched from the pages, which a browser forbids for pages on a disk.
html_show_search_summary = False
templates_path = ["_templates"]
pygments_style = "friendly"
highlight_language = "text"

copybutton_prompt_text = r"\$ |> "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = False
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "code"

breathe_projects = {"distrun": str(HERE.parent / "build/docs/doxygen/xml")}
breathe_default_project = "distrun"
breathe_default_members = ("members",)
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}
