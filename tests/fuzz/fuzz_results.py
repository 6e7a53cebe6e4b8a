# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of modules that reach the controller: the plan of a rollout, the fleet's report, and its three forms."""

from __future__ import annotations

import copy
import json
import random
import time
import typing as t
from html.parser import HTMLParser
from xml.etree import ElementTree

import controller_plugins
import jinja2
import mutation
import test_fleet_report
from fuzz_target import Outcome, Target
from oracles import texts_in

KEY = {"kind": "edited", "key": "cpu.isolated.cores", "before": 1, "after": 4, "origin": "group_vars/edge.yml", "disruption": "none",
       "changes": ["a change"]}  # fmt: skip
TENANT = {"name": "acme", "text": "tenant acme: cpu 2 of 4", "used": {"cpu": 2}, "hard": {"cpu": 4}}
FULL = {
    **test_fleet_report.DRIFT, **test_fleet_report.MACHINE, "by_key": [KEY], "notes": ["a note"], "paused": test_fleet_report.PAUSED,
    "unconfirmed": test_fleet_report.UNCONFIRMED, "tenants": [TENANT], "effective_profile": {"cpu": {"reserved": "0-1"}},
    "cpu_map_now": test_fleet_report.MACHINE["cpu_map"], "reboot": [], "problems": [],
}  # fmt: skip
SEEDS = (
    FULL, FULL, FULL, test_fleet_report.IN_SYNC, test_fleet_report.REFUSED, test_fleet_report.FAILED, test_fleet_report.NO_PYTHON,
    test_fleet_report.UNREACHABLE, test_fleet_report.MAINTAINED,
)  # fmt: skip


class Page(HTMLParser):
    """A page whose elements are known: one that came with a text is none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img" or any(name.startswith("on") for name, dummy in attrs):
            self.foreign = f"<{tag} {attrs}>"


def form_of(name: str) -> t.Callable[[t.Any], str]:
    """A template as Ansible renders it, read once."""
    environment = test_fleet_report.AsAnsible(undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["strftime"] = lambda form, moment, utc: time.strftime(form, time.gmtime(moment))
    template = environment.from_string((test_fleet_report.TEMPLATES / f"fleet.{name}.j2").read_text(encoding="utf-8"))
    return lambda report: "".join(map(str, template.generate(__corral_report={**report, "time": 0})))


class Results(Target):
    def prepare(self) -> None:
        self.forms = {name: form_of(name) for name in ("html", "md", "xml")}

    def make(self, chance: random.Random) -> t.Any:
        hosts = {f"n{number}": copy.deepcopy(chance.choice(SEEDS)) for number in range(chance.choice((1, 2, 5)))}
        agents: dict[str, t.Any] = {
            name: chance.choice(({"skipped": True}, {"drift": []}, test_fleet_report.DRIFT)) for name in hosts
        }
        for name, result in hosts.items():
            if chance.random() < 0.7:
                hosts[name] = self.damaged(chance, result)
            if chance.random() < 0.2:
                agents[name] = self.damaged(chance, agents[name])
        # As Ansible has them: what a module prints is JSON.
        return json.dumps(hosts), json.dumps(agents), chance.choice(("html", "md", "xml"))

    def damaged(self, chance: random.Random, result: t.Any) -> t.Any:
        """A result is a mapping: Ansible makes it one."""
        for dummy in range(20):
            changed = mutation.mutated_data(chance, result)
            if isinstance(changed, dict) and all(isinstance(key, str) for key in changed):
                return changed
        return result

    def run(self, data: t.Any) -> Outcome:
        hosts, agents, form = json.loads(data[0]), json.loads(data[1]), data[2]
        plan = controller_plugins.load("filter.rollout_plan").rollout_plan(hosts, agents)
        report = controller_plugins.load("filter.fleet_report").fleet_report(hosts, agents)
        page = self.forms[form](report)
        json.dumps(report)
        shown = ["\n".join(plan["lines"]), "\n".join(report["lines"])]
        # A message has a problem on each line: so a case of JUnit has it, and a reason that is data.
        shown += page.split("\n") if form == "xml" else [page]
        shown += [line for text in texts_in(plan["refused"]) for line in text.split("\n")]
        verdicts = {host["verdict"] for host in report["hosts"].values()}
        depth = "some of it refused" if "impossible data" in "\n".join(report["lines"]) else f"shown as {form}"
        wrong = ""
        if form == "xml":
            try:
                ElementTree.fromstring(page.encode("utf-8", "replace"))
            except ElementTree.ParseError as error:
                wrong = f"not XML: {error}"
        if form == "html":
            parser = Page()
            parser.feed(page)
            wrong = parser.foreign and f"an element of a host's: {parser.foreign}"
        if any("unreachable" in one for one in hosts.values() if one.get("unreachable")) and verdicts == {"in_sync"}:
            wrong = "in sync, and a host did not answer"
        return Outcome(depth, tuple(shown), wrong)


TARGETS = {"results": Results}
