"""What is published for people: a web page for each record, and the index, which is docs/errors.md."""

import html.parser
import shutil
import subprocess
from importlib.metadata import version

import pytest

from peerax.cli import main
from peerax.dataset import index, pages
from peerax.dataset._index import TESTED, executed_with
from peerax.diagnostics import records
from tests.dataset.built import built
from tests.diagnostics.executed import executable
from tests.documents import ROOT

RECORDS = records()
MANUAL = "jax-psend-manual-sharding"
VOID = {"meta", "input", "br", "hr", "img"}


class Page(html.parser.HTMLParser):
    """Read a page: its text and links; elements must be closed as they were opened."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.links, self.fetched = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "a":
            self.links.append(attributes["href"])
        self.fetched += [attributes[name] for name in ("src", "srcset") if name in attributes] + [tag] * (tag == "link")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def made():
    pytest.importorskip("markdown_it")
    return pages({MANUAL: "https://github.com/jax-ml/jax/blob/main/a.py#L7"})


def test_there_is_a_page_for_each_record_and_an_index(made):
    assert set(made) == {"index.html"} | {f"{slug}.html" for slug in RECORDS}


@pytest.mark.parametrize("slug", RECORDS)
def test_page_has_all_that_is_known_and_needs_nothing_else(made, slug):
    page, record = Page(made[f"{slug}.html"]), RECORDS[slug]
    text = "".join(page.text)
    assert page.fetched == []
    assert set(page.links) <= {*made, "https://github.com/jax-ml/jax/blob/main/a.py#L7"} | {
        link for link in page.links if link.startswith("https://") and link in record.body
    }
    assert record.failing.code in text and record.fixed.code in text
    assert record.title in text
    assert record.code or record.heading in text
    for words in (record.handling, *record.prevention):
        assert "".join(words.replace("`", "").split()) in "".join(text.split())


def test_index_leads_to_all(made):
    page = Page(made["index.html"])
    assert page.links == [
        f"{record.slug}.html"
        for origin in ("peerax", "jax", "xla")
        for record in RECORDS.values()
        if record.origin == origin
    ]


def test_code_is_marked_by_its_kinds(made):
    text = made[f"{MANUAL}.html"]
    assert '<pre class="fails"><code><span class="k">import</span>' in text
    assert '<pre class="runs"><code><span class="k">import</span>' in text
    assert '<span class="s">&quot;stage&quot;</span>' in text or '<span class="s">&quot;</span>' in text


@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium here")
def test_a_browser_shows_them(tmp_path, capsys, monkeypatch):
    pytest.importorskip("markdown_it")
    monkeypatch.setattr("peerax.dataset.build", built)
    assert main(["records", "pages", str(tmp_path / "site")]) == 0
    assert f"wrote {len(RECORDS) + 1} pages" in capsys.readouterr().err
    address = (tmp_path / "site" / f"{MANUAL}.html").as_uri()
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom"]
    done = subprocess.run(["chromium", *options, address], capture_output=True, text=True, timeout=60)
    assert "<h1>psend was lowered outside of the manual axes of a shard_map</h1>" in done.stdout
    assert 'href="https://github.com/jax-ml/jax/blob/' in done.stdout


def test_docs_errors_is_up_to_date():
    pytest.importorskip("packaging")
    shown = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert shown == index(), "run: peerax records index --out docs/errors.md"


def test_docs_errors_names_each_record_and_its_page():
    shown = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for slug, record in RECORDS.items():
        place = f"../src/peerax/diagnostics/{'pages' if record.code else 'records'}/{slug}.md"
        assert place in shown
        assert (ROOT / "docs" / place).resolve().exists()
    assert f"{len(RECORDS)} errors have such a page" in shown


def test_docs_errors_counts_what_is_executed():
    """The numbers that test_records prints are those that the document shows."""
    pytest.importorskip("packaging")
    if version("jax") not in TESTED:
        pytest.skip("the document is about other versions of JAX")
    names = [
        name
        for record in RECORDS.values()
        for name, example in executable(record)
        if example.needs is None  # is executed only where it happens to be installed
    ]
    counted = executed_with(version("jax"))
    assert counted == (names.count("failing"), names.count("fixed"))
    shown = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert f"| {version('jax')} | {counted[0]} | {counted[1]} |" in shown
