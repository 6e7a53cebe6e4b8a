# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet's page in Chromium: what people see and search, for 10,000 hosts, in both themes, with and without its script.

tools/browser_tests.py runs it; the pictures are in .cache.
"""

from __future__ import annotations

import pathlib
import shutil
import time
import typing as t

import controller_plugins
import fleet
import pytest
from axe_playwright_python.sync_playwright import Axe
from jinja2.nativetypes import NativeEnvironment
from playwright.sync_api import Browser, Page, sync_playwright

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]

HOSTS = 10_000
DRAWN = 200  # groups of each kind
NOW = [
    "node 0   RR Ss | EE II   CPUs 0-7   socket 0",
    "node 1   RR SS | ?E II   CPUs 8-15   socket 1",
    "node 2   (no CPUs)",
    "R reserved 0-1,8-9   S shared 2-3,10-11   E exclusive 4-5,13 (lane 4-5,13)   I isolated 6-7   small letters: not as declared, 3,12",
]
ROW = " | ".join(["SS SS SS SS"] * 4)
MACHINE = {
    "cpu_map": [f"node 0   {ROW}   CPUs 0-15,64-79   socket 0", "node 2   (no CPUs)", "R reserved 0-1   S shared 2-3   E exclusive 4-5   I isolated 6-7"],
    "numa_nodes": [{"node": 0, "cpus": "0-7", "memory_mib": 2048, "hugepages": {"2Mi": 32}}],
    "workloads": [
        {"name": "lane", "state": "granted", "reason": None, "tenant": "acme", "cpus": "4-5", "memory_nodes": "0",
         "devices": {"example.com/nic": ["0000:01:00.0"]}, "since": 1_795_255_200},
    ],
    "gc_report": ["gc: since the node started 2 images and 0 containers removed, 310Mi freed, 0 failures"],
}  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def browser() -> t.Iterator[Browser]:
    with sync_playwright() as driver:
        # Tests may run as root, for whom Chromium has no sandbox; the page is the project's own.
        started = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield started
        started.close()


class AsAnsible(NativeEnvironment):
    """Jinja's code for native types, which knows no autoescape, with the parts put together as text."""

    concat = staticmethod(lambda parts: "".join(map(str, parts)))  # type: ignore[assignment]


def written(folder: pathlib.Path, hosts: dict[str, dict[str, t.Any]]) -> pathlib.Path:
    """The page of these hosts, as the playbook drift writes it."""
    environment = AsAnsible(trim_blocks=True)
    environment.filters["strftime"] = lambda form, moment, utc: time.strftime(form, time.gmtime(moment))
    source = (CHECKOUT / "playbooks" / "templates" / "fleet.html.j2").read_text(encoding="utf-8")
    report = controller_plugins.load("filter.fleet_report").fleet_report(hosts, {name: {"drift": []} for name in hosts})
    file = folder / "fleet.html"
    page = environment.from_string(source).generate(__corral_report={**report, "time": 0})
    file.write_text("".join(map(str, page)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A host of each kind."""
    chance = fleet.random.Random(7)
    drifted = {**fleet.host(5, chance), **MACHINE, "cpu_map_now": NOW}
    hosts = {
        "drifted": drifted,
        "good-1": {**fleet.host(1, chance), **MACHINE},
        "good-2": {**fleet.host(1, chance), **MACHINE},
        "gone": {"unreachable": True, "msg": "Connection refused"},
        "no": {"msg": "cpu: no", "problems": [{"path": "cpu", "value": None, "message": "no", "origin": ""}]},
        HOSTILE: {"msg": HOSTILE, "module_stderr": HOSTILE},
    }
    return written(tmp_path_factory.mktemp("few"), hosts)


def opened(browser: Browser, file: pathlib.Path, said: list[str], **context: t.Any) -> Page:
    """The page in a window of its own; the browser's errors and warnings are added to ``said``."""
    page = browser.new_context(viewport={"width": 1200, "height": 900}, **context).new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.extend([request.url] if not request.url.startswith("file:") else []))
    page.goto(file.as_uri())
    return page


def headings(page: Page) -> list[str]:
    """The hosts of each group that can be seen, in the page's order."""
    return [one.inner_text() for one in page.locator("section h2").all() if one.is_visible()]


def test_problems_come_first_and_what_is_in_sync_is_folded(browser: Browser, few: pathlib.Path) -> None:
    said: list[str] = []
    page = opened(browser, few, said)
    assert headings(page) == ["gone", HOSTILE, "no", "drifted"]
    assert page.get_by_role("region", name="gone unreachable").is_visible(), "its name says what is wrong"
    page.locator("#fine > summary").click()
    assert headings(page)[4:] == ["good-1,good-2"]
    assert said == []


def test_the_map_shows_caches_pools_and_what_is_not_as_declared(browser: Browser, few: pathlib.Path) -> None:
    page = opened(browser, few, [])
    now = page.locator("section.drift figure").first
    assert now.locator(".cache").count() == 2
    assert [one.inner_text() for one in now.locator("i.differs").all()] == ["s", "?"]
    assert now.locator(".row i.exclusive").count() == 3
    assert "exclusive 4-5,13 (lane 4-5,13)" in now.inner_text()
    page.locator("section.drift summary").click()
    table = page.get_by_role("table", name="Workloads of drifted")
    assert table.get_by_role("row", name="lane").inner_text().split("\t")[:3] == ["lane", "granted", "4-5"]
    assert page.get_by_role("table", name="NUMA nodes of drifted").get_by_role("cell", name="2048 MiB").is_visible()


def test_words_and_verdicts_select_what_is_shown(browser: Browser, few: pathlib.Path) -> None:
    page = opened(browser, few, [])
    search, status = page.get_by_role("searchbox"), page.get_by_role("status")
    assert status.inner_text() == "5 of 5 groups of hosts"
    search.fill("GOOD-2")
    assert headings(page) == ["good-1,good-2"], "the fold opens"
    search.fill("nothing like this")
    assert (headings(page), status.inner_text()) == ([], "0 of 5 groups of hosts")
    search.fill("")
    page.get_by_role("checkbox", name="unreachable").uncheck()
    assert headings(page) == [HOSTILE, "no", "drifted"]
    assert page.locator("#fine").is_visible()
    page.get_by_role("checkbox", name="in sync").uncheck()
    assert not page.locator("#fine").is_visible(), "a fold without a group"


def test_print_shows_what_is_folded_and_folds_it_again(browser: Browser, few: pathlib.Path) -> None:
    page = opened(browser, few, [])
    folds = page.locator("details").count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[open]").count() == folds
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_the_page_says_what_its_words_mean(browser: Browser, few: pathlib.Path) -> None:
    page = opened(browser, few, [])
    page.get_by_text("What the words and signs mean").click()
    terms = [one.inner_text() for one in page.locator("dt").all()]
    signs = ["~", "!", "?", "[next start]", "[next boot]", "[service restart]", "|"]
    assert terms == ["in sync", "drift", "refused", "failed", "unreachable", *signs]
    assert page.get_by_text("what the node has -> what the profile declares").is_visible()


@pytest.mark.parametrize(("width", "media"), [(400, "screen"), (1200, "screen"), (718, "print")])
def test_nothing_is_cut_off(width: int, media: t.Any, browser: Browser, few: pathlib.Path) -> None:
    page = opened(browser, few, [])
    page.set_viewport_size({"width": width, "height": 900})  # 718: A4 with Chromium's margins
    page.emulate_media(media=media)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    wider = "[...document.querySelectorAll('*')].filter(one => one.clientWidth && one.scrollWidth > one.clientWidth)"
    assert page.evaluate(f"{wider}.map(one => `${{one.tagName}}.${{one.className}}`)") == []
    assert page.locator("section.drift .row").last.inner_text().split() == ["node", "2", "(no", "CPUs)"]


def test_all_of_it_is_there_without_a_script(browser: Browser, few: pathlib.Path) -> None:
    page = opened(browser, few, [], java_script_enabled=False)
    assert headings(page) == ["gone", HOSTILE, "no", "drifted"]
    assert not page.locator("form").is_visible()
    page.locator("#fine > summary").click()
    assert headings(page)[4:] == ["good-1,good-2"]


def test_a_host_that_writes_markup_is_shown_as_text(browser: Browser, few: pathlib.Path) -> None:
    page = opened(browser, few, [])
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.get_by_text("<img src=x").first.is_visible()


def test_a_script_that_is_not_the_pages_own_does_not_run(browser: Browser, few: pathlib.Path) -> None:
    said: list[str] = []
    other = few.with_name("other.html")
    other.write_text(few.read_text(encoding="utf-8") + "<script>document.title = 'changed'</script>", encoding="utf-8")
    page = opened(browser, other, said)
    assert page.title().startswith("Corral: 6 hosts")
    assert [one for one in said if "Content Security Policy" in one]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_can_be_read_by_all(theme: t.Any, browser: Browser, few: pathlib.Path) -> None:
    # axe-core is a script that the page's policy does not allow.
    page = opened(browser, few, [], color_scheme=theme, bypass_csp=True)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    page.screenshot(path=CHECKOUT / ".cache" / f"fleet-page-{theme}.png", full_page=True)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert len(found.response["passes"]) > 20


def test_ten_thousand_hosts(browser: Browser, tmp_path: pathlib.Path) -> None:
    chance = fleet.random.Random(HOSTS)
    file = written(tmp_path, {f"host{one:05}": fleet.host(one, chance) for one in range(HOSTS)})
    assert file.stat().st_size <= 20_000_000
    said: list[str] = []
    page = opened(browser, file, said)
    groups = page.locator("section").count()
    assert DRAWN < groups <= 2 * DRAWN
    assert page.get_by_role("status").inner_text() == f"{groups} of {groups} groups of hosts"
    page.get_by_role("searchbox").fill("host00001")
    assert len(headings(page)) == 1
    drawn = page.locator("#fine section").count()
    assert drawn == len({"\n".join(one["cpu_map"]) for one in fleet.machines()}) >= 9, (
        "a group for each kind of machine"
    )
    assert page.locator("section.drift i.differs").count() == DRAWN, "one CPU on each host that differs"
    assert said == []
