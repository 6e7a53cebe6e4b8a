# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a rollout over several hosts: their order, and what is done about each of them."""

from __future__ import annotations

import typing as t

import controller_plugins
import pytest

rollout_plan = controller_plugins.load("filter.rollout_plan").rollout_plan
AGENT = {"skipped": True}


def profile(before: int) -> dict[str, t.Any]:
    key = {
        "kind": "edited",
        "key": "cpu.isolated.cores",
        "before": before,
        "after": 4,
        "origin": "",
        "disruption": "none",
    }
    return {"drift": [], "by_key": [{**key, "changes": ["a change"]}] if before != 4 else []}


def test_numbers_in_the_names_of_hosts_are_sorted_as_numbers() -> None:
    profiles = {
        "n10": profile(1), "n9": profile(2), "n2": profile(1), "n11": profile(4), "n3": profile(4),
        "n20": {"unreachable": True, "msg": "gone"}, "n8": {"unreachable": True, "msg": "gone"},
    }  # fmt: skip
    plan = rollout_plan(profiles, dict.fromkeys(profiles, AGENT))
    assert plan["lines"] == [
        "n2,n10: as follows",
        "  cpu.isolated.cores: 1 -> 4",
        "    a change",
        "n9: as follows",
        "  cpu.isolated.cores: 2 -> 4",
        "    a change",
        "n3,n11: nothing to change",
        "n8,n20: cannot have it",
        "  unreachable: gone",
        "7 hosts: 3 would change, 2 cannot have the profile",
    ]
    assert plan["changing"] == ["n2", "n9", "n10"]
    apart = rollout_plan({"n10": profile(1), "n9": profile(2)}, {"n10": AGENT, "n9": AGENT})
    assert [line for line in apart["lines"] if line.endswith("follows")] == ["n9: as follows", "n10: as follows"]


def test_a_key_says_where_it_is_from_and_what_it_disturbs() -> None:
    found = profile(1)
    found["by_key"][0].update(origin="group_vars/edge.yml", disruption="service restart")
    lines = rollout_plan({"n1": found}, {"n1": AGENT})["lines"]
    assert lines[1] == "  cpu.isolated.cores: 1 -> 4 (group_vars/edge.yml) [service restart]"


@pytest.mark.parametrize(("returned", "why"), [
    ({"drift": "all"}, "drift is text, expected a list"),
    ({"drift": [1]}, "drift[0] is a number, expected a mapping"),
    ({"drift": [], "by_key": "x"}, "by_key is text, expected a list"),
    ({"drift": [], "by_key": [{"kind": "edited"}]}, "by_key[0].key is missing, expected text"),
    (
        {"drift": [], "by_key": [{**profile(1)["by_key"][0], "changes": [{}]}]},
        "by_key[0].changes has a mapping, expected texts",
    ),
    ({"drift": [], "notes": [{}]}, "notes[0] is a mapping, expected text"),
    ({"drift": [], "paused": "x"}, "paused is text, expected a mapping"),
])  # fmt: skip
def test_a_host_that_returns_impossible_data_is_named_and_keeps_no_other_from_its_plan(
    returned: dict[str, t.Any], why: str
) -> None:
    plan = rollout_plan({"n1": profile(1), "n2": returned}, {"n1": AGENT, "n2": AGENT})
    assert plan["changing"] == ["n1"]
    assert plan["lines"][-3:] == [
        "n2: cannot have it",
        f"  the module profile returned impossible data: {why}; look at the node, and at its version of Corral",
        "2 hosts: 1 would change, 1 cannot have the profile",
    ]
    other = rollout_plan({"n1": profile(1)}, {"n1": {"drift": [], "changes": ["x"]}})
    assert "the module agent returned impossible data: changes[0] is text" in other["refused"]["n1"]


def test_notes_are_below_the_plan_of_their_hosts_and_split_no_group() -> None:
    typo = "tenants[0].members: no workload belongs to tenant acme yet"
    profiles = {
        "n1": {**profile(1), "notes": ["irqbalance runs", typo]},
        "n2": {**profile(1), "notes": [typo, "db.service used 5 CPUs"]},
        "n3": {**profile(4), "notes": [typo]},
        "n4": {**profile(4), "notes": [f"note {number}" for number in range(30)]},
        "n5": profile(4),
    }
    plan = rollout_plan(profiles, dict.fromkeys(profiles, AGENT))
    assert plan["lines"][:7] == [
        "n1,n2: as follows",
        "  cpu.isolated.cores: 1 -> 4",
        "    a change",
        f"  note: {typo}",
        "  note (n1): irqbalance runs",
        "  note (n2): db.service used 5 CPUs",
        "n3,n4,n5: nothing to change",
    ]
    assert plan["lines"][7:9] == [f"  note (n3): {typo}", "  note (n4): note 0"]
    assert plan["lines"][-3:-1] == ["  note (n4): note 18", "  and 11 more notes"]
    assert plan["changing"] == plan["acting"] == ["n1", "n2"]


def test_no_text_of_a_host_moves_the_cursor_of_a_terminal() -> None:
    hostile = profile(1)
    hostile["by_key"][0].update(key="\x1b[2J", changes=["\x1b[31m"], before="a\rb")
    lines = rollout_plan({"n1": hostile}, {"n1": AGENT})["lines"]
    assert lines[1:3] == ["  \\x1b[2J: a\\rb -> 4", "    \\x1b[31m"]


def test_a_host_that_is_refused_has_lines_of_its_own_alone() -> None:
    said = "x\nn2: nothing to change\x1b[2J"
    drifted = profile(1)
    drifted["by_key"][0].update(kind="drift", changes=[said])
    plan = rollout_plan({"n1": drifted, "n2": {**profile(1), "paused": {"text": said}}}, {"n1": AGENT, "n2": AGENT})
    assert all(line.isprintable() for text in plan["refused"].values() for line in text.split("\n"))
    assert not any(line.startswith("n2: nothing") for line in plan["lines"])
    assert sum("n2: nothing to change" in text for text in plan["refused"].values()) == 2
    assert "x\\nn2: nothing to change" in plan["refused"]["n1"]


def test_a_paused_host_cannot_have_it_unless_that_is_wanted_there() -> None:
    paused = {**profile(1), "paused": {"text": "paused for an hour"}}
    terms = {"n2": {"during_pause": "apply"}, "n3": {"during_pause": "refuse"}}
    plan = rollout_plan(dict.fromkeys(("n1", "n2", "n3"), paused), dict.fromkeys(("n1", "n2", "n3"), AGENT), terms)
    said = "paused for an hour; end the pause, or set corral_during_pause to apply"
    assert plan["refused"] == {"n1": said, "n3": said}
    assert plan["changing"] == ["n2"]


def test_a_rollout_does_something_on_hosts_that_change_are_rebooted_or_have_an_unconfirmed_change() -> None:
    later = {"text": "the command line", "when": "next boot", "verdict": "drift", "disruption": "none"}
    same = profile(4)
    profiles = {
        "n1": same, "n2": {**same, "unconfirmed": {"text": "until noon"}}, "n3": {**same, "drift": [later]}, "n4": {**same, "drift": [later]},
        "n5": same, "n6": same, "n7": profile(1), "n8": {"skipped": True}, "n9": same,
    }  # fmt: skip
    terms = {"n3": {"reboot_ok": True}, "n5": {"reboot_ok": True, "reboot_for": ["a kernel"]}, "n6": {"reboot_for": ["a kernel"]},
             "n8": {"reboot_ok": True, "reboot_for": ["a kernel"]}}  # fmt: skip
    agents: dict[str, dict[str, t.Any]] = {
        **dict.fromkeys(profiles, AGENT),
        "n9": {"drift": [], "changes": [{"text": "~ agent"}]},
    }
    plan = rollout_plan(profiles, agents, terms)
    assert plan["changing"] == ["n7", "n9"]
    assert plan["acting"] == ["n2", "n3", "n5", "n7", "n9"]
    told = "\n".join(plan["lines"])
    assert "n2: as follows\n  has an unconfirmed change, which the rollout confirms or replaces\n" in told
    assert "n1,n8: nothing to change" in told
    gone = rollout_plan({"n1": {**same, "paused": {"text": "paused"}, "unconfirmed": {"text": "x"}}}, {"n1": AGENT})
    assert gone["acting"] == [] and list(gone["refused"]) == ["n1"]


@pytest.mark.parametrize(("terms", "said"), [
    ({"on_drift": "ignore"}, "n1: corral_on_drift: ignore: write stop, adopt or overwrite"),
    ({"during_pause": "wait"}, "n1: corral_during_pause: wait: write refuse or apply"),
])  # fmt: skip
def test_a_word_that_is_no_choice_is_refused_by_the_name_of_its_variable(terms: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rollout_plan({"n1": profile(1)}, {"n1": AGENT}, {"n1": terms})


def test_tags_that_select_nothing_are_no_plan_without_changes() -> None:
    """A misspelt --tags agents is not reported as nothing to change."""
    hosts = {"n1": AGENT, "n2": AGENT}
    for agents in ({"n1": {}, "n2": {}}, dict.fromkeys(hosts, AGENT)):
        with pytest.raises(ValueError, match="no tag selects the profile or the agent"):
            rollout_plan(hosts, agents)
    found = {"drift": [], "changes": []}
    assert rollout_plan(hosts, {"n1": found, "n2": AGENT})["lines"][0] == "n1,n2: nothing to change"


def test_what_a_node_adopts_is_a_mapping() -> None:
    """A rollout writes it to a file on the controller: a list could be the tasks of another file there."""
    plan = rollout_plan({"n1": {**profile(1), "adopted": [{"ansible.builtin.command": "id"}]}}, {"n1": AGENT})
    assert "adopted is a list, expected a mapping" in plan["refused"]["n1"]
