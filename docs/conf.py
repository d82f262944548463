"""How Sphinx builds the site, from the repository's root: `make docs`.

The root is the source folder, so that each page stands where it stands on GitHub, and its links work in both places.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_extensions"), str(DOCS.parent)]

import mpisign  # noqa: E402

project = "mpisign"
author = "The mpisign developers"
project_copyright = author
release = version = mpisign.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
    "docstrings",
    "commands",
    "results",
    "pages",
]

root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "tutorials/*",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "examples/README.md",
    "slurm/README.md",
]
exclude_patterns = ["docs/_build", "docs/_*", ".*", "runs", "build", "**/.ipynb_checkpoints"]

# pages
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # what is stored is what is shown; tests/test_tutorials.py keeps it current
nb_ipywidgets_js = {}  # they would come from elsewhere
highlight_language = "text"
html_math_renderer = "mathml"

# docstrings
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries = False
default_role = "code"
nitpick_ignore_regex = [
    ("py:obj", r".*"),  # what stands between backticks in a docstring: a link where it is described, else code
    ("py:(class|exc|meth|func|data|attr)", r"(?!mpisign\.).*"),  # Python's, torch's, numpy's; their pages are elsewhere
    ("py:class", r"mpisign\..*"),  # types in signatures that are on no page of their own
]

# the site
html_theme = "furo"
html_title = "mpisign"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0065A0"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#7CC4EE"},
    "light_logo": "logo.svg",
    "dark_logo": "logo.svg",
}
