# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the design demands of every file, and no linter knows: layers, headers, the action group."""

from __future__ import annotations

import ast
import collections
import graphlib
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from _core.managers import registry
from _core.model.values import vocabulary

CHECKOUT = Path(__file__).resolve().parents[2]
CORE = CHECKOUT / "plugins" / "module_utils" / "_core"
TESTS = CHECKOUT / "tests" / "unit" / CORE.relative_to(CHECKOUT)
SOURCES = sorted(CORE.rglob("*.py"))

# A layer imports itself (managers excepted) and what is further left.
LAYERS = ("constants", "model", "host", "managers", "reports", "cli", "main")
BESIDE_REPORTS = {"pipeline": "reports", "gc": "reports"}
# Files that are a part of another one's manager.
MANAGER_OF = {
    "cpu_v1": "cpu",
    "cpu_described": "cpu",
    "cpu_dropins": "cpu",
    "cpu_moves": "cpu",
    "cpu_observed": "cpu",
    "device_drivers": "device_grants",
    "device_places": "device_grants",
    "device_specs": "device_grants",
    "kubelet_change": "kubelet",
    "kubelet_items": "kubelet",
    "kubelet_observed": "kubelet",
    "kubelet_obstacles": "kubelet",
    "kubelet_places": "kubelet",
    "kubelet_plan": "kubelet",
    "kubelet_removal": "kubelet",
    "kubelet_target": "kubelet",
    "memory_described": "memory",
    "memory_mounts": "memory",
    "checkpoint": "workloads",
    "shared_weight": "workloads",
    "tenant_slices": "workloads",
    "workload_containers": "workloads",
    "workload_namespaces": "workloads",
    "workload_limits": "workloads",
    "workload_placement": "workloads",
}
SHARED = {"manager", "pass_timer", "sysctl_keys"}  # what managers have in common
# From the distribution, where it is installed: for reports and a person's YAML; the tick does without.
OPTIONAL = {"psutil", "yaml"}
# What reads or changes a machine has no place in the model.
DOES_IO = {"io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "time"}


def imports(source: Path) -> list[tuple[int, str]]:
    """(level, dotted name) of each import; level 0 is absolute. `from .. import x` names x."""
    found = []
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found += [(node.level, name) for name in names]
    return found


def layer_of(source: Path) -> str:
    name = source.relative_to(CORE).with_suffix("").parts[0]
    return BESIDE_REPORTS.get(name, name)


def imported(source: Path) -> set[Path]:
    """The files of the core that a file of it imports, wherever in it: in functions and for type hints as well."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = source.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            inner = {place / f"{alias.name}.py" for alias in node.names}
            found |= {path for path in (*inner, place.with_suffix(".py")) if path.is_file()}
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_core_imports_run_downward(source: Path) -> None:
    layer = layer_of(source)
    for level, name in imports(source):
        if level == 0:
            top = name.split(".")[0]
            if hasattr(sys, "stdlib_module_names"):  # Python 3.10
                others = set() if layer == "model" else OPTIONAL
                assert top in sys.stdlib_module_names | others, f"{name} is not in the standard library"
            assert top != "dataclasses", "its import alone costs more than a tick may"
            assert layer != "model" or top not in DOES_IO, f"the model does no I/O: {name}"
            continue
        up = source.parents[level - 1]
        assert up == CORE or CORE in up.parents, f"{name} lies outside the core"
    for other in imported(source):
        below = layer_of(other)
        assert LAYERS.index(below) <= LAYERS.index(layer), f"{layer} must not import {below}: {other.stem}"
        of_another = MANAGER_OF.get(other.stem, other.stem) != MANAGER_OF.get(source.stem, source.stem)
        of_another = of_another and other.stem not in SHARED and source.stem != "registry"
        assert not (layer == below == "managers" and of_another), f"a manager never imports another: {other.stem}"


def test_each_manager_is_registered_and_in_ansibles_payload() -> None:
    """Ansible sends what is imported somewhere, in functions and for type hints as well: importlib's names it does not know."""
    apart = {*SHARED, "registry", *MANAGER_OF}
    files = {source.stem for source in SOURCES if layer_of(source) == "managers"} - apart
    assert {name.rpartition(".")[2] for name in (*registry.FILES.values(), *registry.APART.values())} == files
    seen = {other.stem for other in imported(CORE / "managers" / "registry.py") if layer_of(other) == "managers"}
    assert seen - apart == files
    assert tuple(manager.name for manager in registry.every()) == registry.names()


@pytest.mark.parametrize("word", [*t.get_args(vocabulary.When), *t.get_args(vocabulary.Disruption)])
def test_each_word_for_when_a_change_takes_effect_and_what_it_disturbs_is_said_of_some(word: str) -> None:
    """Two words were documented once, and no manager ever said them."""
    files = [*(CORE / "managers").rglob("*.py"), CORE / "model" / "plan" / "plan.py"]  # which has what most changes say
    nodes = (one for file in files for one in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    assert word in {one.value for one in nodes if isinstance(one, ast.Constant)}
    assert f"`{word}`" in (CHECKOUT / "docs" / "json.md").read_text(encoding="utf-8")


def test_core_has_no_import_cycle() -> None:
    try:
        graphlib.TopologicalSorter({source: imported(source) for source in SOURCES}).prepare()
    except graphlib.CycleError as error:
        names = [str(path.relative_to(CORE)) for path in error.args[1]]
        pytest.fail(f"each imports the one before it: {', '.join(names)}")


def test_file_names_are_unique_within_the_core() -> None:
    names = collections.Counter(source.name for source in SOURCES)
    assert [name for name, count in names.items() if count > 1] == []
    assert "__init__.py" not in names


def test_each_floor_has_the_same_rooms() -> None:
    """A line of code about devices is in the folder ``devices`` of its layer. The model has no file about the other two subjects."""
    rooms = {
        floor: {path.parent.name for path in (CORE / floor).glob("*/*.py")} for floor in ("model", "host", "managers")
    }
    assert rooms["host"] | rooms["managers"] <= rooms["model"] | {"memory", "snapshot"}
    tests = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    assert tests <= {path.parent.relative_to(CORE) for path in SOURCES}, "tests are in the folder of what they test"


# What the validator replays plans with shares no code with what makes plans, nor do the tests' fakes with the core.
INDEPENDENT = {
    "kernel_cpusets": set(),
    "moving_cpusets": {"kernel_cpusets"},
    "replay": {"cpuset", "errors", "kernel_cpusets", "moving_cpusets", "plan", "unit_group"},
}


def test_the_replay_shares_no_code_with_the_planner() -> None:
    found = {one.stem: {other.stem for other in imported(one)} for one in SOURCES if one.stem in INDEPENDENT}
    assert found == INDEPENDENT


def test_the_installed_program_has_every_command() -> None:
    """It has the files that imports lead to from main.py, as Ansible finds them: written out, wherever they stand."""
    found, left = set(), [CORE / "main.py"]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += imported(one)
    assert set((CORE / "cli").glob("*.py")) - {CORE / "cli" / "__init__.py"} <= found


def test_fakes_share_no_code_with_the_core() -> None:
    fakes = sorted([*(CHECKOUT / "tests" / "unit").glob("fake_*.py"), CHECKOUT / "tests" / "unit" / "guard.py"])
    shared = {name for fake in fakes for level, name in imports(fake) if name.split(".")[0] == "_core"}
    answers = {
        "_core.host.command",
        "_core.host.containers",
        "_core.host.containers.podman_unit",
        "_core.host.containers.podman_worker",
    }
    assert shared == answers, "no more than answers"


def test_one_file_knows_ansible_modules() -> None:
    private = CHECKOUT.glob("plugins/module_utils/*.py")
    knowing = {source.name for source in private if any(name.startswith("ansible.") for dummy, name in imports(source))}
    assert knowing == {"_module.py"}
    for source in CHECKOUT.glob("plugins/modules/*.py"):
        ours = "ansible_collections.corral.node.plugins.module_utils"
        assert {name for dummy, name in imports(source)} == {"__future__", ours}, "a module is thin"


def tracked() -> list[Path]:
    """The files of the checkout, as git has them; none outside a git checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=False)
    paths = [CHECKOUT / name for name in done.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_each_source_file_says_its_licence() -> None:
    written_by_tools = {CHECKOUT / "changelogs" / "changelog.yaml"}
    suffixes = {".cfg", ".j2", ".py", ".service", ".sh", ".timer", ".toml", ".yaml", ".yml"}
    without = [
        str(path.relative_to(CHECKOUT))
        for path in tracked()
        if path.suffix in suffixes
        and path not in written_by_tools
        and "SPDX-License-Identifier: GPL-3.0-or-later" not in path.read_text(encoding="utf-8")[:600]
    ]
    assert without == []


def test_action_group_is_all_modules() -> None:
    group = yaml.safe_load((CHECKOUT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["action_groups"]["node"]
    modules = {path.stem: path.read_text(encoding="utf-8") for path in CHECKOUT.glob("plugins/modules/*.py")}
    assert modules
    assert sorted(modules) == sorted(group)
    assert [name for name, text in modules.items() if "corral.node._attributes.action_group" not in text] == []


# The tick asks Host's questions again to know that nothing changed: what is read beside Host, it would miss.
BESIDE_HOST = {
    "host/accounts.py",  # one question, which is asked again as a whole
    "host/containers/conmon.py",  # within one question, which is asked again as a whole
    "host/pids/oom_score.py",  # within one question, which is asked again as a whole
    "host/cpu/thread_masks.py",  # within a step, of threads that a look does not know
    "cli/command_output.py",
    "cli/commands.py",
    "cli/node_commands.py",
    "cli/diff_command.py",  # files that its user names
    "host/command.py",
    "host/files.py",
    "host/recorded_inputs.py",
    "host/lock.py",
    "host/containers/podman_unit.py",  # a pass asks, and no tick does
    "host/containers/podman_worker.py",  # a program of its own
    "host/sd_bus.py",  # its questions count as commands, with which nothing is kept
    "host/slow_write.py",  # a write
    "host/snapshot/archive_tree.py",  # files that its user names, as in the two below
    "host/user_file.py",
    "host/snapshot/folder_tree.py",
    "host/snapshot/recorded_tree.py",
    "host/snapshot/snapshot.py",
}
NOT_THE_MACHINE = {
    "os.EX_OK",
    "os.environ",
    "os.environ.get",
    "os.geteuid",
    "os.major",
    "os.minor",
    "os.path",
    "os.path.dirname",
    "os.strerror",
    "os.sysconf",
}


# Where text of others comes in, by what shows it. What these files make of it is escaped there, or where it becomes a value that is
# shown: a change, a problem, a note, an outcome, an answer of a command (printable_fields).
WAYS_IN = {
    "decode": {
        "host/plan/apply_step.py",  # an original, which is written back as it was
        "host/command.py",
        "host/files.py",
        "host/kubelet/http_answer.py",
        "host/kubelet/kubelet_ready.py",  # a certificate
        "host/pids/oom_score.py",  # a PID
        "cli/diff_command.py",  # a plan or a profile, whose changes and problems are made anew
        "cli/profile_file.py",  # a profile, which is checked
        "host/snapshot/archive_tree.py",  # names in an archive, for a refusal
        "host/snapshot/kept_in_snapshot.py",  # what is written into a snapshot
        "host/containers/podman_unit.py",  # what Podman said last, for an error that escapes it
        "host/containers/podman_worker.py",  # runs as the user; root's process checks its answers (podman_unit)
        "host/sd_bus.py",  # an answer becomes one of a command
        "managers/kubelet/kubelet_change.py",  # a file that is written back
        "model/values/printable_text.py",
    },
    "json.loads": {
        "cli/container_hook.py",  # a PID
        "cli/diff_command.py",  # a plan or a profile, whose changes and problems are made anew
        "cli/profile_file.py",  # a profile, which is checked
        "host/containers/conmon.py",  # names of containers, escaped there
        "host/kubelet/kubelet_api.py",  # values that are compared
        "host/kubelet/kubelet_node.py",
        "host/kubelet/kubelet_ready.py",  # why a node is not Ready, for an outcome
        "host/devices/pci_driver.py",  # Corral's own
        "host/containers/running_names.py",  # names of containers, escaped there
        "host/snapshot/kept_in_snapshot.py",  # what is written into a snapshot
        "host/containers/podman_unit.py",  # checked value by value
        "host/containers/podman_worker.py",  # runs as the user
        "host/state.py",  # Corral's own
        "model/devices/device_delivery.py",  # a specification, of which Corral shows its own devices
        "model/kubelet/go_values.py",
        "pipeline/declared_profile.py",
        "reports/data_diff.py",  # the words of a profile
    },
    "/comm": {"host/process.py"},
    "out": {
        "cli/command_output.py", "cli/commands.py", "cli/grant_service.py", "cli/node_commands.py", "cli/status_command.py",
        "cli/workload_commands.py", "main.py", "pipeline/tick.py",
    },
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS_IN)
def test_text_of_others_comes_in_and_goes_out_by_known_doors(way: str) -> None:
    found = {str(source.relative_to(CORE)) for source in SOURCES if way in set(doors(source))}
    assert found == WAYS_IN[way], "escape it there (printable), and name the file here with the reason"


def doors(source: Path) -> t.Iterator[str]:
    """What reads or prints text in a file: bytes that are decoded, JSON, names of processes, the standard streams."""
    for part in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.endswith("/comm"):
            yield "/comm"
        if not isinstance(part, ast.Call):
            continue
        name = ast.unparse(part.func)
        words = [*part.args, *(word.value for word in part.keywords)]
        if name in ("json.loads", "json.load"):
            yield "json.loads"
        elif name in ("sys.stdout.write", "sys.stdout.writelines", "sys.stderr.write", "print"):
            yield "out"
        elif name.endswith(".decode") and all(isinstance(word, ast.Constant) for word in words):
            yield "decode"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_the_machine_is_read_through_host_alone(source: Path) -> None:
    if str(source.relative_to(CORE)) in BESIDE_HOST:
        return
    tree = ast.parse(source.read_text(encoding="utf-8"))
    used = {ast.unparse(part) for part in ast.walk(tree) if isinstance(part, ast.Attribute)}
    used |= {part.func.id for part in ast.walk(tree) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    assert {name for name in used if name.startswith("os.") or name == "open"} <= NOT_THE_MACHINE
    modules = {name.split(".")[0] for level, name in imports(source) if level == 0}
    assert not modules & {"ctypes", "glob", "grp", "io", "pathlib", "pwd", "shutil", "socket", "subprocess"}


TASKS = sorted([*CHECKOUT.glob("roles/*/*/*.yml"), *CHECKOUT.glob("playbooks/*.yml")])


@pytest.mark.parametrize("file", TASKS, ids=lambda file: str(file.relative_to(CHECKOUT)))
def test_roles_and_playbooks_have_names_of_their_own_for_variables(file: Path) -> None:
    """A user's fact or registered variable of the same name would take the place of a task's own variable (Ansible's precedence)."""
    prefixes = ("corral_", "__corral_", "ansible_")
    assert [name for name in variables(yaml.safe_load(file.read_text())) if not name.startswith(prefixes)] == []


def test_no_fact_of_a_role_or_playbook_is_a_variable_of_a_task_as_well() -> None:
    """The fact would take its place, as a user's would: also one of another file that ran before."""
    data = [yaml.safe_load(file.read_text()) for file in TASKS]
    facts, own = set(variables(data, keys=FACTS)), set(variables(data, keys=("vars",)))
    assert facts and own
    assert sorted(facts & own) == []


FACTS = ("register", "ansible.builtin.set_fact")


def variables(data: object, keys: tuple[str, ...] = (*FACTS, "vars", "loop_var")) -> list[str]:
    """The variables that plays and tasks define with these keys."""
    if isinstance(data, list):
        return [name for item in data for name in variables(item, keys)]
    if not isinstance(data, dict):
        return []
    found = []
    for key in keys:
        value = data.get(key) or ()
        found += [value] if isinstance(value, str) else value
    return found + [name for item in data.values() for name in variables(item, keys)]
