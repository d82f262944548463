"""The site builds without a warning and without a network, and its pages hold together, in a browser too."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="no sphinx here: pip install 'mpisign[docs]'")
pytest.importorskip("furo", reason="no furo here: pip install 'mpisign[docs]'")
pytest.importorskip("myst_nb", reason="no myst-nb here: pip install 'mpisign[docs]'")

ROOT = Path(__file__).parents[1]
BUILD = "python -m sphinx -W --keep-going -n -q -j auto -c docs ."  # the words of the Makefile
MOST = 5_000_000  # bytes of a page
NO_NETWORK = "http://127.0.0.1:9"  # the discard port: what asks a proxy there fails

pytestmark = [pytest.mark.slow, pytest.mark.launches]


class Page(HTMLParser):
    """What a page refers to.

    Attributes:
        links: (tag, attribute, address) of all that it names.
        anchors: its ids.
        pictures: the attributes of its <img>.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.anchors: set[str] = set()
        self.pictures: list[dict[str, str | None]] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.anchors.update(filter(None, (named.get("id"), named.get("name") if tag == "a" else None)))
        self.links += [
            (tag, key, named[key] or "") for key in ("href", "src", "srcset", "poster", "data") if key in named
        ]
        if tag == "meta" and named.get("http-equiv") == "refresh":
            self.links.append((tag, "content", named["content"].split("url=")[1]))
        if tag == "img":
            self.pictures.append(named)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the built pages."""
    built = tmp_path_factory.mktemp("site") / "html"
    command = [sys.executable, *BUILD.split()[1:], str(built)]
    settings = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), NO_NETWORK)
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=400, env={**os.environ, **settings}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "WARNING" not in done.stderr, done.stderr[-4000:]
    return built


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_make_docs_is_the_build_that_is_tested():
    assert f"{BUILD} docs/_build/html" in (ROOT / "Makefile").read_text()


def test_each_link_within_the_site_leads_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for tag, _, address in page.links:
            split = urlsplit(address)
            if split.scheme or split.netloc:
                continue
            target = (path.parent / unquote(split.path)).resolve() if split.path else path
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or not target.is_relative_to(site):
                broken.append(f"{path.relative_to(site)}: <{tag}> {address}: no such file")
            elif split.fragment and target.suffix == ".html" and unquote(split.fragment) not in anchors:
                broken.append(f"{path.relative_to(site)}: <{tag}> {address}: no such anchor")
    assert len(pages) > 25
    assert not broken, "\n".join(broken)


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, page in pages.items():
        for tag, key, address in page.links:
            split = urlsplit(address)
            outwards = bool(split.netloc) or split.scheme not in ("", "data", "mailto", "http", "https")
            assert not outwards or (tag, key) == ("a", "href"), (
                f"{path.relative_to(site)}: <{tag} {key}={address[:100]}>"
            )
    for path in site.rglob("*.css"):
        said = re.findall(r"(?:url\(|@import\s)[\s'\"]*((?:https?:)?//[^)'\"]*)", path.read_text())
        assert not said, f"{path.relative_to(site)}: {said}"


def test_each_picture_says_what_it_shows(site, pages):
    silent = [(str(path.relative_to(site)), picture.get("src", "")[:80]) for path, page in pages.items()
              for picture in page.pictures if not (picture.get("alt") or "").strip()]  # fmt: skip
    assert not silent


def test_no_page_is_large(pages):
    for path in pages:
        assert path.stat().st_size < MOST, path.name


@pytest.mark.parametrize("path", sorted((ROOT / "tutorials").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_tutorial_is_there_with_its_pictures_and_solutions(site, path):
    said = path.read_text()
    page = (site / "tutorials" / f"{path.stem}.html").read_text()
    assert len(Page(site / "tutorials" / f"{path.stem}.html").pictures) >= said.count('"image/png"')
    assert page.count("<details") >= said.count("<details>") > 0
    assert ("RanksFailed" in page) == ("RanksFailed" in said)
    assert page.count("<math ") >= said.count("$$") // 2


def test_formulas_are_mathml_and_none_is_left_to_a_script(pages):
    assert sum(path.read_text().count("<math ") for path in pages) > 100
    for path in pages:
        assert not re.search(r"<script[^>]*mathjax", path.read_text(), re.IGNORECASE), path.name
        assert not re.search(r'class="math [^"]*"', path.read_text()), path.name  # what Sphinx leaves to a script


def test_pages_load_without_an_error_and_without_a_request_that_fails(browser, pages):
    wrong = {}
    for path in pages:
        browser.open(path.as_uri())
        dead = browser.value(
            "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src.slice(0, 80))"
        )
        if browser.wrong or dead:
            wrong[path.name] = [*browser.wrong, *dead]
    assert not wrong


def test_the_page_of_the_root_leads_to_the_first_page(browser, site):
    browser.open((site / "index.html").as_uri())
    assert browser.soon("location.pathname.endsWith('/docs/index.html')")


def test_the_slider_of_tutorial_05_changes_its_picture(browser, site):
    browser.open((site / "tutorials" / "05_adversaries.html").as_uri())
    picture = "document.querySelector('.mpisign-slider img')"
    states = [browser.value(f"[{picture}.alt, {picture}.src]")]
    for position in (0, 7):
        browser.value(
            f"(knob => {{knob.value = {position}; knob.dispatchEvent(new Event('input', {{bubbles: true}}))}})"
            "(document.querySelector('.mpisign-slider input'))"
        )
        assert browser.soon(f"{picture}.complete && {picture}.naturalWidth > 100")
        states.append(browser.value(f"[{picture}.alt, {picture}.src]"))
    assert [title for title, _ in states] == ["liars = 2", "liars = 0", "liars = 7"]
    assert len({source for _, source in states}) == 3
    assert not browser.wrong


def test_the_browser_notices_what_goes_wrong(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<script>missing()</script><img src='nothing.png'><script src='http://127.0.0.1:9/x.js'></script>")
    browser.open(page.as_uri())
    assert {said.split(":")[0] for said in browser.wrong} >= {"script", "failed", "leaves this machine"}


def test_a_formula_that_cant_be_converted_ends_the_build(tmp_path):
    (tmp_path / "index.md").write_text("# Page\n\nA formula $\\nosuchcommand{x}$.\n")
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'docs' / '_extensions')!r})\n"
        "extensions = ['myst_parser', 'mathml']\nmyst_enable_extensions = ['dollarmath']\nhtml_math_renderer = 'mathml'\n"
    )
    command = [sys.executable, "-m", "sphinx", "-W", "-q", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "nosuchcommand" in done.stderr
