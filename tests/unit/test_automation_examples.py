# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples for AWX and Event-Driven Ansible name variables, playbooks and alerts that there are."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
# The types whose answers AWX checks: _survey_element_validation() in awx/main/models/mixins.py.
AWX_TYPES = {"text", "textarea", "password", "integer", "float", "multiplechoice", "multiselect"}
AWX_FIELDS = {
    "question_name", "question_description", "required", "type", "variable", "min", "max", "default", "choices", "new_question",
}  # fmt: skip


def documented(playbook: str) -> set[str]:
    """The variables that a playbook's own text or the role's argument specs document."""
    text = (CHECKOUT / "playbooks" / f"{playbook}.yml").read_text()
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    specs = yaml.safe_load((CHECKOUT / "roles/corral/meta/argument_specs.yml").read_text())
    role = set(specs["argument_specs"]["main"]["options"]) if playbook == "rollout" else set()
    used = set(re.findall(r"\bcorral_[a-z_]+\b", text))
    return (set(re.findall(r"\bcorral_[a-z_]+\b", comments)) | role) & (used | role)


def test_each_question_of_the_survey_is_one_of_awx_for_a_variable_of_the_rollout() -> None:
    survey = json.loads((CHECKOUT / "examples/automation/awx-survey.json").read_text())
    assert set(survey) == {"name", "description", "spec"}
    questions = survey["spec"]
    names = [question["variable"] for question in questions]
    assert len(set(names)) == len(names) > 0
    assert set(names) <= documented("rollout")
    for question in questions:
        assert set(question) == AWX_FIELDS
        assert question["type"] in AWX_TYPES
        default, choices = question["default"], question["choices"]
        if question["type"] == "multiplechoice":
            assert default in choices
        elif question["type"] == "integer":
            assert question["min"] <= default <= question["max"]
        else:
            assert question["min"] <= len(default) <= question["max"]


def test_the_survey_has_the_playbooks_own_defaults() -> None:
    survey = json.loads((CHECKOUT / "examples/automation/awx-survey.json").read_text())
    given = {question["variable"]: question["default"] for question in survey["spec"]}
    text = (CHECKOUT / "playbooks/rollout.yml").read_text()
    defaults = yaml.safe_load((CHECKOUT / "roles/corral/defaults/main.yml").read_text())
    of_plays = {name: value for play in yaml.safe_load(text) for name, value in play.get("vars", {}).items()}
    of_plays = {name: value for name, value in of_plays.items() if not name.startswith("__corral_")}
    assert of_plays == {"corral_max_fail_percentage": given["corral_max_fail_percentage"]}
    for name in ("corral_serial", "corral_on_drift", "corral_hosts"):
        said = {match.strip("'") for match in re.findall(rf"\b{name} \| default\((.*?)(?:, true)?\)", text)}
        assert said == {str(given[name])}, name
    assert json.loads(given["corral_reboot_ok"]) is defaults["corral_reboot_ok"]


def test_the_rulebook_answers_alerts_that_there_are_with_playbooks_that_there_are() -> None:
    rulesets = yaml.safe_load((CHECKOUT / "examples/automation/eda-rulebook.yml").read_text())
    groups = yaml.safe_load((CHECKOUT / "examples/prometheus-rules.yml").read_text())["groups"]
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}
    for ruleset in rulesets:
        assert set(ruleset) == {"name", "hosts", "sources", "rules"}
        (source,) = ruleset["sources"]
        assert set(source) == {"name", "ansible.eda.alertmanager"}
        assert source["ansible.eda.alertmanager"]["host"] == "localhost", "it asks for no password"
        for rule in ruleset["rules"]:
            assert set(rule) == {"name", "condition", "throttle", "action"}
            named = re.findall(r'alertname == "(\w+)"', rule["condition"])
            assert named and set(named) <= set(alerts)
            # Its host is the label instance, which each of these alerts has to keep.
            assert all(not re.search(r"sum by \((?!instance)", str(alerts[name]["expr"])) for name in named)
            (action,) = rule["action"].items()
            check_playbook(*action)


def check_playbook(kind: str, options: dict[str, t.Any]) -> None:
    assert kind == "run_playbook"
    namespace, collection, playbook = options["name"].split(".")
    galaxy = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())
    assert (namespace, collection) == (galaxy["namespace"], galaxy["name"])
    assert (CHECKOUT / "playbooks" / f"{playbook}.yml").is_file()
    assert set(options["extra_vars"]) <= documented(playbook) | {"corral_hosts"}
