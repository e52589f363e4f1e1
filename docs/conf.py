"""How Sphinx builds the documentation; ``site_pages`` writes the pages that are generated."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import eagerflow as ef

project = "eagerflow"
author = copyright = "The eagerflow authors"
release = version = ef.__version__

extensions = ["myst_parser", "site_pages.extension"]
exclude_patterns = ["_build", "site_pages"]
root_doc = "index"

myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 3
# What is in no language: what programs print, and commands.
highlight_language = "text"
# Each page copies the tree of all pages: with every name in it, that took two thirds of a build.
toc_object_entries = False

html_theme = "furo"
html_title = "eagerflow"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "static" / "scorer.js")
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
