# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's report: every way a host can answer has its verdict, and what nobody looked at is never in sync."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import time
import typing as t
from xml.etree import ElementTree

import controller_plugins
import jinja2
import pytest
import yaml
from _core.constants import SCHEMA
from _core.model.values import vocabulary
from jinja2.nativetypes import NativeEnvironment
from shared_data import REPOSITORY

TEMPLATES = REPOSITORY / "playbooks" / "templates"


fleet_report = controller_plugins.load("filter.fleet_report").fleet_report


def item(verdict: str) -> dict[str, t.Any]:
    return {
        "manager": "cpu",
        "subject": "system.slice",
        "property": "AllowedCPUs",
        "actual": None,
        "wanted": "0-1",
        "reason": "why",
        "location": "/p",
        "verdict": verdict,
        "when": "now",
        "disruption": "none",
        "since": 5,
        "text": f"the node's <line> of what is {verdict}",
        "steps": ["not for the report"],
    }


IN_SYNC = {"drift": [], "name": "edge", "mode": "enforce", "pools": {"reserved": "0-1"}}
DRIFT = {**IN_SYNC, "drift": [item("unknown"), item("drift")]}
STUCK = {**IN_SYNC, "drift": [item("unchangeable")]}
UNKNOWN = {**IN_SYNC, "drift": [item("unknown")]}
REFUSED = {"msg": "cpu: no", "problems": [{"path": "cpu", "value": None, "message": "no", "origin": ""}]}
FAILED = {"msg": "no result", "module_stderr": "Traceback (most recent call last):\n  File x\nOSError: gone\n"}
NO_PYTHON = {"msg": "no result", "module_stderr": "sh: python3: not found\nmore\n"}
PAUSED = {
    "since": 0,
    "until": 3600,
    "by": "alice",
    "uid": 1000,
    "reason": "a disk",
    "text": "the node's line of the pause",
}
UNCONFIRMED = {
    "name": "edge",
    "hash": "0a1b2c3d4e5f",
    "since": 0,
    "until": 120,
    "before": None,
    "text": "the node's line of the confirmation",
}
MAINTAINED = {**STUCK, "paused": PAUSED}
UNREACHABLE = {"unreachable": True, "msg": "Connection refused"}
SKIPPED = {"skipped": True}
AGENT = {"drift": []}
LANE = {
    "name": "lane",
    "state": "granted",
    "reason": None,
    "tenant": "acme",
    "qos": "Guaranteed",
    "hold": "running",
    "slice": "corral_exclusive_lane.slice",
    "cpus": "4-5",
    "memory_nodes": "1",
    "devices": {"example.com/nic": ["0000:01:00.0", "0000:02:00.0"]},
    "since": 5,
}
MACHINE = {
    "cpu_map": ["node 0   RR SS | EE II   CPUs 0-7", "R reserved 0-1   S shared 2-3   E exclusive 4-5 (lane 4-5)"],
    "numa_nodes": [
        {"node": 0, "cpus": "0-7", "memory_mib": 2048, "hugepages": {"2Mi": 32, "1Gi": 0}},
        {"node": 1, "cpus": "", "memory_mib": None, "hugepages": {}},
    ],
    "workloads": [LANE],
    "gc_report": ["gc: since the node started nothing"],
}


NODE = MACHINE["numa_nodes"][0]


def deep(count: int) -> list[t.Any]:
    """So many lists in each other."""
    found: list[t.Any] = []
    for dummy in range(count - 1):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("profile", "agent", "verdict", "lines"),
    [
        (IN_SYNC, AGENT, "in_sync", ["n: in sync (profile edge, mode enforce)"]),
        (IN_SYNC, SKIPPED, "in_sync", ["n: in sync (profile edge, mode enforce)"]),
        (IN_SYNC, {}, "failed", None),
        (IN_SYNC, {"drift": None}, "failed", None),
        (SKIPPED, SKIPPED, "failed", ["n: failed", "  the task was skipped"]),
        ({}, {}, "failed", ["n: failed", "  the task failed without a message"]),
        (DRIFT, AGENT, "drift", None),
        (STUCK, AGENT, "drift", None),
        ({**DRIFT, "profile_hash_before": None}, AGENT, "not_managed", None),
        ({**DRIFT, "profile_hash_before": None, "unconfirmed": {"text": "waits"}}, AGENT, "drift", None),
        ({**DRIFT, "profile_hash_before": "5d2f"}, AGENT, "drift", None),
        ({**DRIFT, "profile_hash_before": ""}, AGENT, "drift", None),
        ({**IN_SYNC, "profile_hash_before": None}, AGENT, "in_sync", None),
        (IN_SYNC, {"drift": [item("drift")]}, "drift", None),
        (
            UNKNOWN,
            AGENT,
            "unknown",
            [
                "n: unknown, 1 item (profile edge, mode enforce)",
                "  the node's <line> of what is unknown [since 1970-01-01 00:00:05 UTC]",
            ],
        ),
        (REFUSED, AGENT, "refused", ["n: refused", "  cpu: no"]),
        (REFUSED, REFUSED, "refused", ["n: refused", "  cpu: no"]),
        (DRIFT, REFUSED, "refused", None),
        (REFUSED, FAILED, "failed", ["n: failed", "  cpu: no", "  no result", "  OSError: gone"]),
        (NO_PYTHON, NO_PYTHON, "failed", ["n: failed", "  no result", "  sh: python3: not found"]),
        (UNREACHABLE, SKIPPED, "unreachable", ["n: unreachable", "  Connection refused"]),
        (IN_SYNC, UNREACHABLE, "unreachable", None),
        ({**UNREACHABLE, "msg": "Task failed: gone"}, SKIPPED, "unreachable", ["n: unreachable", "  gone"]),
    ],
)
def test_a_host_has_the_verdict_of_what_it_answered(
    profile: dict[str, t.Any], agent: dict[str, t.Any], verdict: str, lines: list[str] | None
) -> None:
    report = fleet_report({"n": profile}, {"n": agent})
    assert report["schema"] == SCHEMA
    galaxy = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text(encoding="utf-8"))
    assert report["version"] == galaxy["version"]
    assert report["hosts"]["n"]["verdict"] == verdict
    assert report["summary"][verdict] == 1
    assert sum(report["summary"].values()) == 1
    if lines is not None:
        assert report["lines"] == [*lines, f"1 host: 1 {verdict.replace('_', ' ')}"]


def test_a_paused_host_says_so_and_is_counted() -> None:
    report = fleet_report({"a": MAINTAINED, "b": {**IN_SYNC, "paused": PAUSED}, "c": IN_SYNC}, {
        "a": AGENT, "b": AGENT, "c": AGENT,
    })  # fmt: skip
    assert [host["paused"] and host["paused"]["by"] for host in report["hosts"].values()] == ["alice", "alice", None]
    assert report["lines"][:2] == [
        "a: drift, 1 item (profile edge, mode enforce)",
        "  the node's line of the pause",
    ]
    assert report["lines"][-1] == "3 hosts: 2 in sync, 1 drift (2 paused)"


def test_a_host_whose_profile_waits_to_be_confirmed_says_so_and_is_counted() -> None:
    results = {"a": {**IN_SYNC, "unconfirmed": UNCONFIRMED}, "b": {**MAINTAINED, "unconfirmed": UNCONFIRMED}}
    report = fleet_report(results, {"a": AGENT, "b": AGENT})
    assert report["hosts"]["a"]["unconfirmed"] == UNCONFIRMED
    assert report["lines"][1:3] == ["  the node's line of the pause", "  the node's line of the confirmation"]
    assert "  the node's line of the confirmation" in report["lines"][3:]
    assert report["lines"][-1] == "2 hosts: 1 in sync, 1 drift (1 paused, 2 unconfirmed)"


def test_notes_are_below_the_items_of_their_hosts_and_split_no_group() -> None:
    typo = "tenant acme: no workload belongs to it"
    results = {
        "a": {**UNKNOWN, "notes": [f"line\x07 of <{HOSTILE}>"]},
        "b": {**IN_SYNC, "notes": ["irqbalance runs", typo]},
        "c": {**IN_SYNC, "notes": [typo]},
        "d": IN_SYNC,  # of an older Corral
        "e": FAILED,
    }
    report = fleet_report(results, dict.fromkeys(results, AGENT))
    said = f"line\\x07 of <{HOSTILE}>".replace("\x00", "\\x00").replace("\ufffe", "\\ufffe")
    lines = [f"note: {said}", f"note (b,c): {typo}", "note (b): irqbalance runs"]
    assert [one["notes"] for one in report["groups"]] == [[], lines[:1], lines[1:]]
    assert [line for line in report["lines"] if "note" in line] == [f"  {line}" for line in lines]
    assert report["lines"][-4:-1] == ["b,c,d: in sync (profile edge, mode enforce)", *(f"  {one}" for one in lines[1:])]
    assert [host["notes"] for host in report["hosts"].values()] == [
        [said],
        ["irqbalance runs", typo],
        [typo],
        None,
        None,
    ]
    assert report["summary"]["in_sync"] == 3, "a note is no drift"
    for form in ("md", "html"):
        text = drawn(report, form)
        assert [one for one in lines[1:] if one not in text] == []
    assert f"    {lines[0]}" in drawn(report, "md").splitlines()
    assert HOSTILE not in drawn(report)


def test_the_recap_begins_with_the_worst() -> None:
    results = {"a": IN_SYNC, "b": UNKNOWN, "c": DRIFT, "d": REFUSED, "e": FAILED, "f": UNREACHABLE, "g": DRIFT}
    report = fleet_report(results, dict.fromkeys(results, AGENT))
    heads = [line.partition(":")[0] for line in report["lines"][:-1] if not line.startswith(" ")]
    assert heads == ["f", "e", "d", "c,g", "b", "a"]
    assert list(report["hosts"]) == sorted(results), "in the file they are in the order of their names"


def test_every_item_is_in_the_file_and_on_a_line() -> None:
    report = fleet_report({"b": DRIFT, "a": IN_SYNC}, {"b": AGENT, "a": AGENT})
    assert list(report["hosts"]) == ["a", "b"]
    assert [one["verdict"] for one in report["hosts"]["b"]["items"]] == ["unknown", "drift"]
    assert "steps" not in report["hosts"]["b"]["items"][0]
    assert report["lines"] == [
        "b: drift, 2 items (profile edge, mode enforce)",
        "  the node's <line> of what is unknown [since 1970-01-01 00:00:05 UTC]",
        "  the node's <line> of what is drift [since 1970-01-01 00:00:05 UTC]",
        "a: in sync (profile edge, mode enforce)",
        "2 hosts: 1 in sync, 1 drift",
    ]


class AsAnsible(NativeEnvironment):
    """Jinja's code for native types, which knows no autoescape, with the parts put together as text."""

    concat = staticmethod(lambda parts: "".join(map(str, parts)))  # type: ignore[assignment]


def drawn(report: dict[str, t.Any], form: str = "html") -> str:
    """A template as Ansible renders it."""
    environment = AsAnsible(undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["strftime"] = lambda form, moment, utc: time.strftime(form, time.gmtime(moment))
    text = (TEMPLATES / f"fleet.{form}.j2").read_text(encoding="utf-8")
    return "".join(map(str, environment.from_string(text).generate(__corral_report={**report, "time": 0})))


HOSTILE = "# ]]> & <b>\x00\ufffe ``` \"quoted\" 'too'"


def test_junit_has_a_case_for_each_host_whatever_the_hosts_say() -> None:
    drift = {**DRIFT, "drift": [{**item("drift"), "text": HOSTILE}, item("unchangeable")]}
    results = {
        "a": IN_SYNC,
        "b & c": drift,
        "d": UNREACHABLE,
        "e": {**IN_SYNC, "paused": PAUSED},
        "f": REFUSED,
        "g": UNKNOWN,
    }
    report = fleet_report(results, dict.fromkeys(results, AGENT))
    root = ElementTree.fromstring(drawn(report, "xml"))
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["6", "1", "3"]
    suite = root[0]
    assert suite.get("timestamp") == "1970-01-01T00:00:00"
    cases = {case.get("name"): case for case in suite}
    assert list(cases) == ["a", "b & c", "d", "e", "f", "g"] and list(cases["a"]) == []
    (failure,) = cases["b & c"]
    assert (failure.tag, failure.get("type")) == ("failure", "drift")
    shown = HOSTILE.replace("\x00", "\\x00").replace("\ufffe", "\\ufffe")
    assert (failure.text or "").strip().splitlines() == [shown, "the node's <line> of what is unchangeable"]
    assert failure.get("message") == f"{shown} (and 1 more)"
    assert [(one.tag, one.get("type")) for one in (*cases["d"], *cases["f"], *cases["g"])] == [
        ("error", "unreachable"), ("error", "refused"), ("error", "unknown"),
    ]  # fmt: skip
    assert [(one.tag, one.text) for one in cases["e"]] == [("system-out", "the node's line of the pause")]


def test_markdown_shows_what_nodes_say_as_it_is() -> None:
    drift = {**DRIFT, "drift": [{**item("drift"), "text": HOSTILE}]}
    report = fleet_report({"a": IN_SYNC, "b": drift, "c": drift, "d": FAILED}, dict.fromkeys("abcd", AGENT))
    lines = drawn(report, "md").splitlines()
    assert lines[:3] == [
        "# Nodes against their profiles",
        "",
        "1970-01-01 00:00:00 UTC: 4 hosts: 1 in sync, 2 drift, 1 failed",
    ]
    assert "| drift | 2 |" in lines and "| refused | 0 |" not in lines
    heads = [line for line in lines if line.startswith("## ")]
    assert heads == ["## failed: 1 host", "## drift: 2 hosts", "## in sync: 1 host"]
    begin = lines.index("## drift: 2 hosts")
    assert lines[begin - 1 : begin + 5] == [
        "", "## drift: 2 hosts", "", "    --limit b,c", "    profile edge, mode enforce",
        "    # ]]> & <b>\\x00\\ufffe ``` \"quoted\" 'too' [since 1970-01-01 00:00:05 UTC]",
    ]  # fmt: skip
    assert all(line.startswith(("    ", "#", "|", "1970")) or not line for line in lines)


def test_markdown_has_what_the_recap_has_of_each_host() -> None:
    tenants = [{"name": "acme", "text": "tenant acme: q requests.cpu 3 of 4"}]
    maps = {"cpu_map": ["node 0   RR   CPUs 0-1", "R reserved 0-1"], "cpu_map_now": ["node 0   Rr   CPUs 0-1"]}
    sick = {**MAINTAINED, **maps, "tenants": tenants, "unconfirmed": UNCONFIRMED}
    report = fleet_report({"a": sick, "b": FAILED}, {"a": AGENT, "b": AGENT})
    lines = [line.strip() for line in drawn(report, "md").splitlines()]
    said = [line.strip() for line in report["lines"][:-1] if line.startswith(" ")]
    assert len(said) == 6
    assert [line for line in said if line not in lines] == []
    now, declared = "CPUs as they are now:", "CPUs as the profile declares them:"
    at = lines.index(now)
    assert lines[at : at + 5] == [now, *maps["cpu_map_now"], declared, *maps["cpu_map"]], "each says what it is"


def test_hosts_that_are_alike_are_one_group_since_the_first_of_them() -> None:
    later = {**DRIFT, "drift": [{**one, "since": 90} for one in DRIFT["drift"]]}
    other = {**DRIFT, "cpu_map": ["node 0   RR   CPUs 0-1", "R reserved 0-1"]}
    results = {"a": IN_SYNC, "b": later, "c": DRIFT, "d": other, "e": STUCK}
    report = fleet_report(results, dict.fromkeys(results, AGENT))
    assert [(one["verdict"], one["hosts"]) for one in report["groups"]] == [
        ("drift", ["b", "c"]),
        ("drift", ["d"]),
        ("drift", ["e"]),
        ("in_sync", ["a"]),
    ]
    assert report["groups"][0]["since"] == [5, 5]
    assert report["lines"][0] == "b,c,d: drift, 2 items (profile edge, mode enforce)", "lines have no picture"
    assert report["lines"].count("  the node's <line> of what is drift [since 1970-01-01 00:00:05 UTC]") == 1
    page = drawn(report)
    places = [page.index(text) for text in (">b,c</h2>", ">e</h2>", '<details id="fine">', ">a</h2>")]
    assert places == sorted(places)


def test_hosts_that_do_not_answer_for_the_same_reason_are_one_group() -> None:
    said = "Failed to connect to the host via ssh: "
    timed_out = [f"{said}ssh: connect to host {one} port 22: Connection timed out" for one in ("10.0.0.1", "fe80::2")]
    unknown = [f"{said}ssh: Could not resolve hostname {one}: Name or service not known" for one in ("c", "d.example")]
    refused = [f"{said}root@{one}: Permission denied (publickey)." for one in ("e", "f")]
    results = {
        name: {"unreachable": True, "msg": text} for name, text in zip("abcdef", [*timed_out, *unknown, *refused])
    }
    report = fleet_report({**results, "g": results["a"], "h": results["f"]}, {})
    assert [one["hosts"] for one in report["groups"]] == [["a", "b", "g"], ["e", "f", "h"], ["c", "d"]]
    assert report["lines"][:4] == [
        "a,b,g: unreachable",
        f"  {said}ssh: connect to host … port 22: Connection timed out",
        "e,f,h: unreachable",
        f"  {said}root@…: Permission denied (publickey).",
    ]
    assert report["hosts"]["b"]["message"] == timed_out[1]
    assert timed_out[0] not in drawn(report) and report["lines"][1].strip() in drawn(report)
    alone = fleet_report({"a": results["a"], "g": results["a"]}, {})
    assert alone["groups"][0]["message"] == timed_out[0]


def test_hosts_in_sync_are_one_line_and_the_page_keeps_to_a_size() -> None:
    good = {f"g{number:03}": IN_SYNC for number in range(25)}
    bad = {
        f"n{number:03}": {**IN_SYNC, "drift": [{**item("drift"), "text": f"item {number}"}]} for number in range(203)
    }
    many = {**IN_SYNC, "drift": [item("drift")] * 201}
    results = {**good, **bad, "a": many, "a2": many}
    report = fleet_report(results, dict.fromkeys(results, AGENT))
    names = ",".join(list(good)[:20])
    assert report["lines"][-2] == f"{names} and 5 more: in sync (profile edge, mode enforce)"
    page = drawn(report)
    assert page.count("<section ") == 200 + 1
    assert "<p>4 more groups of hosts that are not in sync are in the JSON file</p>" in page
    assert "<li>1 more are in the JSON file</li>" in page


def test_the_page_colours_every_pool_and_says_whose_cpus_they_are() -> None:
    mapped = {**IN_SYNC, "cpu_map": ["node 0   RR SS IE .   CPUs 0-6", "R reserved 0-1"]}
    report = fleet_report({"a": mapped, "b": {**mapped, "drift": [item("drift")]}}, {"a": AGENT, "b": AGENT})
    page = drawn(report)
    for pool, letter in {"reserved": "R", "shared": "S", "isolated": "I", "exclusive": "E", "offline": "."}.items():
        assert f'<i class="{pool}">{letter}</i>' in page
        assert f"i.{pool} {{" in page
    assert page.count("<figcaption>CPUs as the profile declares them</figcaption>") == 2
    assert "CPUs as they are" not in page
    other = drawn(fleet_report({"a": {**mapped, "cpu_map": ["Rows   S shared 2-3"]}}, {"a": AGENT}))
    assert '<span class="pool">Rows</span>' in other, "no pool, though it begins with the letter of one"


def test_the_page_shows_what_is_before_what_is_declared() -> None:
    mapped = {**DRIFT, "cpu_map": ["node 0   RR SS   CPUs 0-3", "R reserved 0-1   S shared 2-3"]}
    now = ["node 0   Rs S?   CPUs 0-3", "R reserved 0   S shared 1-2   small letters: not as declared, 1,3"]
    report = fleet_report({"a": mapped, "b": {**mapped, "cpu_map_now": now}}, {"a": AGENT, "b": AGENT})
    assert len(report["groups"]) == 2, "their CPUs are not alike"
    page = drawn(report)
    assert page.count("<figcaption>CPUs as they are now; a frame") == 1
    first = page.index("CPUs as they are")
    assert first < page.index("CPUs as the profile declares them", first)
    assert '<i class="reserved">R</i><i class="shared differs">s</i>' in page
    assert '<i class="shared">S</i><i class="none differs">?</i>' in page
    assert '<i class="reserved">R</i> reserved 0</span>' in page
    assert ">small letters: not as declared, 1,3</span>" in page


def test_the_page_has_the_nodes_own_lines_escaped() -> None:
    tenants = [{"name": "acme", "text": "tenant <acme>: q requests.cpu 3 of 4"}]
    sick = {**MAINTAINED, "tenants": tenants, "unconfirmed": UNCONFIRMED}
    report = fleet_report({"a": sick, "b": UNREACHABLE, "<c>": IN_SYNC}, {"a": AGENT, "b": SKIPPED, "<c>": AGENT})
    page = drawn(report)
    assert ">&lt;c&gt;</h2>" in page
    line = "<code>the node&#39;s &lt;line&gt; of what is unchangeable</code>"
    assert f'<li class="unchangeable">{line} <span class="about">since 1970-01-01 00:00:05 UTC' in page
    assert "<p>the node&#39;s line of the pause</p>" in page
    assert "<p>tenant &lt;acme&gt;: q requests.cpu 3 of 4</p>" in page
    assert "  tenant <acme>: q requests.cpu 3 of 4" in report["lines"]
    assert "<p>the node&#39;s line of the confirmation</p>" in page
    assert "<p>Connection refused</p>" in page


def test_the_page_has_the_machine_and_its_workloads() -> None:
    lane = {**LANE, "name": "<lane>", "tenant": "<acme>", "memory_nodes": "<1>", "devices": {"<nic>": ["<0>", "<1>"]}}
    odd = {"node": 0, "cpus": "<0>", "memory_mib": 2, "hugepages": {"<2Mi>": "<3>"}}
    refused = {**LANE, "name": "late", "state": "refused", "reason": "<no>", "devices": {}, "since": None}
    refused.update(tenant=None, memory_nodes=None, cpus="")
    hostile = {**DRIFT, "workloads": [lane, refused], "numa_nodes": [odd], "gc_report": ["<gc>"]}
    page = drawn(fleet_report({"a": hostile, "b": {**DRIFT, **MACHINE, "name": "b"}}, {"a": AGENT, "b": AGENT}))
    assert '<th scope="row">0</th><td>&lt;0&gt;</td><td>2 MiB</td><td>&lt;3&gt; × &lt;2Mi&gt;</td>' in page
    for cell in ("4-5", "&lt;1&gt;", "&lt;nic&gt;: &lt;0&gt;, &lt;1&gt;", "&lt;acme&gt;", "1970-01-01 00:00:05 UTC"):
        assert f"<td>{cell}</td>" in page
    assert f'<th scope="row">late</th><td>refused: &lt;no&gt;</td>{"<td></td>" * 5}</tr>' in page
    assert "<p>&lt;gc&gt;</p>" in page
    assert '<th scope="row">1</th><td></td><td>unknown</td><td></td>' in page
    assert "<td>2048 MiB</td><td>32 × 2Mi, 0 × 1Gi</td>" in page
    assert (
        '<span class="core"><i class="shared">S</i><i class="shared">S</i></span><span class="cache">|</span>' in page
    )


@pytest.mark.parametrize("field", ["numa_nodes", "workloads", "gc_report", None])
def test_the_machine_is_folded_where_anything_is_known_of_it(field: str | None) -> None:
    known = {**IN_SYNC, **({field: MACHINE[field]} if field else {})}
    page = drawn(fleet_report({"a": known}, {"a": AGENT}))
    heading = "<details>\n<summary>Memory, workloads and garbage collection</summary>"
    assert page.count(heading) == (1 if field else 0)
    assert ("<caption>Workloads of a</caption>" in page) == (field == "workloads")
    assert ("<caption>NUMA nodes of a</caption>" in page) == (field == "numa_nodes")
    alike = drawn(fleet_report({"a": known, "b": IN_SYNC}, {"a": AGENT, "b": AGENT}))
    assert alike.count("<summary>Memory, workloads and garbage collection of a</summary>") == (1 if field else 0)
    assert "<summary>2 in sync</summary>" in alike


def test_the_resources_of_a_workload_stand_apart() -> None:
    lane = {**LANE, "devices": {"nic": ["a", "b"], "gpu": ["c"]}}
    page = drawn(fleet_report({"a": {**IN_SYNC, "workloads": [lane]}}, {"a": AGENT}))
    assert "<td>nic: a, b; gpu: c</td>" in page


def test_the_page_has_a_limit_for_groups_in_sync_as_well() -> None:
    results = {f"g{number:03}": {**IN_SYNC, "name": f"p{number}"} for number in range(203)}
    page = drawn(fleet_report(results, dict.fromkeys(results, AGENT)))
    assert page.count("<section ") == 200
    assert "<p>3 more groups of hosts in sync are in the JSON file</p>" in page


def test_the_page_explains_when_a_change_takes_effect_and_what_it_disturbs() -> None:
    page = drawn(fleet_report({"a": DRIFT}, {"a": AGENT}))
    words = {*t.get_args(vocabulary.When), *t.get_args(vocabulary.Disruption)} - {"now", "none"}
    assert set(re.findall(r"<dt>\[(.*?)\]</dt>", page)) == words
    waits = {**item("unchangeable"), "text": "! db.service (outside its slice) [next start] [service restart]"}
    for form in ("html", "md", "xml"):
        shown = drawn(fleet_report({"a": {**DRIFT, "drift": [waits]}}, {"a": AGENT}), form)
        assert "db.service (outside its slice) [next start] [service restart]" in shown


def test_a_browser_runs_the_pages_own_script_alone() -> None:
    page = drawn(fleet_report({"a": {**DRIFT, **MACHINE}}, {"a": AGENT}))
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page


def test_every_expression_of_the_page_is_escaped() -> None:
    text = (TEMPLATES / "fleet.html.j2").read_text(encoding="utf-8")
    found = re.findall(r"{{(.*?)}}", text, re.DOTALL)
    assert len(found) > 50
    macros = re.findall(r"{% macro (\w+)\(", text)
    assert [one for one in found if not one.endswith(" | e ") and one.split("(")[0].strip() not in macros] == []


def test_a_group_of_many_hosts_names_the_first_and_keeps_all() -> None:
    results = {f"n{number:02}": DRIFT for number in range(30)}
    page = drawn(fleet_report(results, dict.fromkeys(results, AGENT)))
    assert f">{','.join(list(results)[:5])} and 25 more</h2>" in page
    assert f"<code>{','.join(results)}</code>" in page


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"drift": "all of it"}, "drift is text, expected a list"),
        ({"drift": [7]}, "drift[0] is a number, expected a mapping"),
        ({"drift": [{}] * 10_001}, "drift has 10001 elements, at most 10000 are possible"),
        ({"drift": [{**item("drift"), "text": None}]}, "drift[0].text is missing, expected text"),
        ({"drift": [item("good")]}, "drift[0].verdict is 'good', expected one of drift, unchangeable, unknown"),
        ({"drift": [{**item("drift"), "since": 10**18}]}, f"drift[0].since is {10**18}, expected seconds since 1970"),
        ({"drift": [{**item("drift"), "since": True}]}, "drift[0].since is True, expected seconds since 1970"),
        ({"name": ["edge"]}, "name is a list, expected text"),
        ({"pools": "0-3"}, "pools is text, expected a mapping"),
        ({"cpu_map": [1]}, "cpu_map[0] is a number, expected text"),
        ({"cpu_map_now": [None]}, "cpu_map_now[0] is missing, expected text"),
        ({"gc_report": [{}]}, "gc_report[0] is a mapping, expected text"),
        ({"numa_nodes": [{"hugepages": {}}]}, "numa_nodes[0].node is missing, expected a number"),
        ({"numa_nodes": [{**NODE, "node": True}]}, "numa_nodes[0].node is a boolean, expected a number"),
        ({"numa_nodes": [{**NODE, "cpus": [0]}]}, "numa_nodes[0].cpus is a list, expected text"),
        ({"numa_nodes": [{**NODE, "memory_mib": "2"}]}, "numa_nodes[0].memory_mib is text, expected a number"),
        ({"numa_nodes": [{**NODE, "hugepages": None}]}, "numa_nodes[0].hugepages is missing, expected a mapping"),
        ({"numa_nodes": [{**NODE, "memory_mib": math.nan}]}, "numa_nodes has a number that is no 64 bits"),
        ({"workloads": [{"devices": {}}]}, "workloads[0].name is missing, expected text"),
        *(
            ({"workloads": [{**LANE, key: 7}]}, f"workloads[0].{key} is a number, expected text")
            for key in ("name", "state", "reason", "cpus", "memory_nodes", "tenant")
        ),
        ({"workloads": [{**LANE, "reason": deep(500)}]}, "workloads has more than 32 lists and mappings in each other"),
        (
            {"workloads": [{**LANE, "devices": {"a": ["b"] * 10_001}}]},
            "workloads has 10001 elements, at most 10000 are possible",
        ),
        ({"pools": {"reserved": -(10**5000)}}, "pools has a number that is no 64 bits"),
        ({"pools": {"reserved": 1 << 64}}, "pools has a number that is no 64 bits"),
        ({"name": deep(40)}, "name has more than 32 lists and mappings in each other"),
        ({"module_stderr": deep(40)}, "module_stderr has more than 32 lists and mappings in each other"),
        ({"msg": deep(900)}, "msg has more than 32 lists and mappings in each other"),
        ({"workloads": [{**LANE, "devices": []}]}, "workloads[0].devices is a list, expected a mapping"),
        ({"workloads": [{**LANE, "devices": {"a": 7}}]}, "workloads[0].devices has a number, expected lists"),
        ({"workloads": [{**LANE, "devices": {"a": None}}]}, "workloads[0].devices has missing, expected lists"),
        ({"workloads": [{**LANE, "since": 10**18}]}, f"workloads[0].since is {10**18}, expected seconds since 1970"),
        ({"tenants": "acme"}, "tenants is text, expected a list"),
        ({"tenants": [{"name": "acme"}]}, "tenants[0].text is missing, expected text"),
        ({"paused": {"by": "alice"}}, "paused.text is missing, expected text"),
        ({"paused": True}, "paused is a boolean, expected a mapping"),
        ({"unconfirmed": {"name": "edge"}}, "unconfirmed.text is missing, expected text"),
        ({"unconfirmed": "edge"}, "unconfirmed is text, expected a mapping"),
    ],
)
def test_a_host_with_impossible_data_has_failed_and_the_others_are_reported(lie: dict[str, t.Any], why: str) -> None:
    report = fleet_report({"a": {**IN_SYNC, **lie}, "b": DRIFT}, {"a": AGENT, "b": AGENT})
    assert {name: host["verdict"] for name, host in report["hosts"].items()} == {"a": "failed", "b": "drift"}
    assert report["lines"][:2] == [
        "a: failed",
        f"  the module profile returned impossible data: {why}; look at the node, and at its version of Corral",
    ]
    assert fleet_report({"a": IN_SYNC}, {"a": {"drift": [7]}})["hosts"]["a"]["verdict"] == "failed"


def test_a_row_of_an_older_corral_is_shown_without_what_it_does_not_know() -> None:
    old = {key: LANE[key] for key in ("name", "state", "cpus", "devices")}
    (shown,) = fleet_report({"a": {**IN_SYNC, "workloads": [old]}}, {"a": SKIPPED})["hosts"]["a"]["workloads"]
    assert shown == {**old, "reason": None, "memory_nodes": None, "tenant": None, "since": None}


def test_no_host_writes_a_control_character_or_a_line_of_another_host() -> None:
    bad = "x\x1b[2J\nb: in sync\u202e\u2028\ud800"
    lie = {**IN_SYNC, "name": bad, "cpu_map": [bad]}
    lie.update(paused={**PAUSED, "text": bad}, unconfirmed={**UNCONFIRMED, "text": bad})
    lie.update(numa_nodes=[{**NODE, "cpus": bad}])
    lie.update(workloads=[{**LANE, "name": bad, "devices": {bad: [bad]}}], gc_report=[bad])
    lie.update(drift=[{**item("drift"), "text": bad}], tenants=[{"name": "a", "text": bad}])
    report = fleet_report({"a": lie, "c": {"msg": bad}}, {"a": AGENT, "c": SKIPPED})
    escaped = "x\\x1b[2J\\nb: in sync\\u202e\\u2028\\ud800"
    assert report["lines"][:3] == ["c: failed", "  x\\x1b[2J", "  b: in sync\\u202e\\u2028\\ud800"]
    assert report["lines"][3:5] == [f"a: drift, 1 item (profile {escaped}, mode enforce)", f"  {escaped}"]
    assert report["hosts"]["a"]["cpu_map"] == [escaped]
    assert report["hosts"]["a"]["tenants"][0]["text"] == escaped
    assert report["hosts"]["a"]["gc_report"] == [escaped]
    assert report["hosts"]["a"]["numa_nodes"] == [{**NODE, "cpus": escaped}]
    (workload,) = report["hosts"]["a"]["workloads"]
    assert (workload["name"], workload["devices"]) == (escaped, {escaped: [escaped]})
    assert all(line.isprintable() for line in report["lines"])


def hostile(value: t.Any, bad: str) -> t.Any:
    """Some data with this text at the end of each text and key in it, but for words that a host may not change."""
    if isinstance(value, dict):
        return {f"{key}{bad}" if key == "nic" else key: hostile(inner, bad) for key, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner, bad) for inner in value]
    return f"{value}{bad}" if isinstance(value, str) and value not in ("drift", "unchangeable", "unknown") else value


def texts(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (str(key), *texts(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


BAD = (
    "\x1b]0;x\x07", "\rb: in sync", "\n# b", "\x85\x9b2J", "\u202e\u2066", "\x00\x7f", "\udc80", "{{ 7 * 7 }}<script>", "`|*_",
)  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=ascii)
def test_no_text_of_a_host_is_more_than_text_in_any_report(bad: str) -> None:
    """The JSON file, the page, Markdown and JUnit."""
    given = {
        **DRIFT, "name": "edge", "pools": {"shared": "0-3"}, "effective_profile": {"cpu": ["a"]}, "notes": ["n"],
        "cpu_map": ["node 0   RS   CPUs 0-1", "R reserved 0"], "gc_report": ["g"], "numa_nodes": [NODE], "workloads": [LANE],
        "tenants": [{"name": "a", "text": "a"}], "paused": PAUSED, "unconfirmed": UNCONFIRMED,
    }  # fmt: skip
    problem = {"path": "cpu", "value": "1", "message": "is wrong", "origin": ""}
    refused = {"msg": "no", "problems": [problem], "module_stderr": "Traceback\nlast"}
    report = fleet_report({"a": hostile(given, bad), "b": hostile(refused, bad)}, {"a": AGENT, "b": SKIPPED})
    report["hosts"]["b"]["message"] = (report["hosts"]["b"]["message"] or "").replace("\n", " ")
    for group in report["groups"]:
        group["message"] = (group["message"] or "").replace("\n", " ")
    assert [text for text in texts(report) if not text.isprintable()] == []
    assert "49" not in str(report["lines"])
    for form in ("html", "md", "xml"):
        page = drawn(report, form)
        assert [line for line in page.split("\n") if not line.isprintable()] == []
        assert form == "md" or "}}<script>" not in page


def test_a_host_that_says_much_leaves_the_page_usable() -> None:
    row = f"node 0   {'R' * 9_000}   CPUs 0"
    sick = {
        **DRIFT,
        "cpu_map": [row] * 300 + ["R reserved 0"],
        "numa_nodes": [NODE] * 301,
        "gc_report": ["gc: x"] * 302,
        "tenants": [{"text": "tenant x"}] * 303,
        "workloads": [{**LANE, "devices": {"nic": ["a"] * 304}}] * 305,
    }
    page = drawn(fleet_report({"a": sick}, {"a": AGENT}))
    for count, what in ((100, "rows"), (101, "NUMA nodes"), (102, "lines of garbage collection"), (103, "tenants")):
        assert f"<p>{count} more {what} are in the JSON file</p>" in page
    assert "<p>105 more workloads are in the JSON file</p>" in page
    assert "a, a and 104 more</td>" in page
    assert page.count('<i class="reserved">R</i>') == 200 * 200 + 1, "no host draws more"
    assert page.count("<p>gc: x</p>") == page.count("<p>tenant x</p>") == page.count("<td>2048 MiB</td>") == 200


def test_a_long_text_of_a_host_is_cut_and_says_so() -> None:
    report = fleet_report({"a": {"msg": "x" * 20_000}}, {"a": SKIPPED})
    assert report["lines"][1] == f"  {'x' * 10_000}... (20000 characters)"


def test_numbers_in_the_names_of_hosts_are_sorted_as_numbers() -> None:
    names = ["n1", "n2", "n10", "rack2-n1", "rack10-n1", "10.0.0.9", "10.0.0.10", "n", "n01", "²", "9" * 5000]
    report = fleet_report(dict.fromkeys(reversed(names), IN_SYNC), {})
    assert list(report["hosts"]) == list(fleet_report(dict.fromkeys(names, IN_SYNC), {})["hosts"]), "n01 is before n1"
    assert [name for name in report["hosts"] if name[0] in "nr"] == [
        "n",
        "n01",
        "n1",
        "n2",
        "n10",
        "rack2-n1",
        "rack10-n1",
    ]
    assert [name for name in report["hosts"] if name[0] == "1"] == ["10.0.0.9", "10.0.0.10"]
    drifted = fleet_report({"n10": {**DRIFT, "name": "b"}, "n9": DRIFT}, {"n10": SKIPPED, "n9": SKIPPED})
    assert [group["hosts"] for group in drifted["groups"]] == [["n9"], ["n10"]]
