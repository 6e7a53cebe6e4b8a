# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection as its users get it: built, installed where nothing else is, imported as Galaxy would; what the
ecosystem's tools say with the newest ansible-core; the playbooks with the oldest one, and the tests with the oldest Python of a node.

The tools of .venv fit its own ansible-core. If this machine has a Python for the newest ansible-core, the built collection
is installed beside that one, in a virtual environment in the cache.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
from concurrent import futures

import ansible_test
import setup
import venvs
from steps import DOCS, LINT, Step, answer, cannot, one_test
from tally import Tally
from unit_tests import unit_tests

GROUND = ansible_test.own_folder("ecosystem")
INSTALLED = GROUND / "installed"
BARE = GROUND / "bare"  # without all that a collection must do without
SHIPPED = {"CONTRIBUTING.md", "LICENSES", "README.md", "SECURITY.md", "bin", "changelogs", "docs", "examples"}
NEEDED = {"meta", "playbooks", "plugins", "roles"}
KINDS = {
    "module": "plugins/modules/*.py",
    "filter": "plugins/filter/*.py",
    "lookup": "plugins/lookup/*.py",
    "role": "roles/*",
}
# Every write is made to fail once, what may start at any moment, random walks, and many cases of one path through the code: most of all
# the time. .venv runs them; with other Pythons they are make test-long's.
PIPELINE = "tests/unit/plugins/module_utils/_core/pipeline"
LONG = (
    "test_anything_happens.py",
    "test_confirming.py",
    "test_confirming_faults.py",
    "test_device_checks.py",
    "test_devices_granted.py",
    "test_drivers_bound.py",
    "test_exclusive.py",
    "test_faults.py",
    "test_gc.py",
    "test_intruders.py",
    "test_kubelet_manager.py",
    "test_legacy.py",
    "test_lost_files.py",
    "test_section_tasks.py",
    "test_set_property_by_hand.py",
    "test_starts_after_deaths.py",
    "test_tenants.py",
    "test_unreadable.py",
    "test_workload_faults.py",
)
# The tests that run playbooks of the collection; they need no node.
PLAYBOOKS = (
    "test_automation_examples.py",
    "test_facts_of_nodes.py",
    "test_role_booleans.py",
    "test_role_layers.py",
    "test_rollout_playbook.py",
)
# What a release of ansible-core may do otherwise: the order of hosts and batches, failures, loops, conditions, templates, variables,
# and results of modules. .venv runs all tests of playbooks, make test-long with the oldest ansible-core as well.
OF_THE_CORE = (
    "a_batch_goes_back_from_a_failure",
    "a_file_of_tasks_that_ansible_cannot_run",
    "a_host_first_then_two_then_all",
    "a_host_goes_back_whatever_results",
    "a_host_is_drained",
    "a_layer_that_is_made_of_a_fact",
    "a_node_says_nothing",
    "a_report_is_made_once",
    "a_task_with_a_loop",
    "a_task_with_no_log",
    "become_one_profile",
    "made_of_no_fact",
    "no_setting_of_ansible",
    "tasks_of_many_kinds",
    "the_plan_shows_what_differs",
    "the_playbook_rollback",
    "the_role_exports",
    "the_role_in_check_mode",
    "the_role_says_each_change",
    "test_automation_examples",
    "test_batches",
    "test_fleet_report",
    "test_role_booleans",
    "test_rollout_hosts",
    "test_rollout_plan",
)
# The sanity tests that read the collection with ansible-core's own code; .venv's runs all of its own, make test-long all of both.
OF_THE_VERSION = ("action-plugin-docs", "ansible-doc", "compile", "import", "runtime-metadata", "validate-modules")
NO_OLDEST = "no Python 3.10 to 3.12 here: the oldest ansible-core is not tried"
NO_NEWEST = "no Python >= 3.12 here beside that of .venv: the newest ansible-core is not tried"


@functools.cache
def newest() -> pathlib.Path | None:
    """The virtual environment with the newest ansible-core; None when .venv has it, or no Python here is for it."""
    python = venvs.newest_python()
    return venvs.made("newest", python) if python else None


def user() -> pathlib.Path:
    """The virtual environment that the built collection is installed for."""
    return newest() or setup.VENV


@functools.cache
def oldest() -> pathlib.Path | None:
    """The virtual environment with the oldest ansible-core; None when no Python here is for it."""
    python = venvs.oldest_python()
    return venvs.made("oldest", python) if python else None


@functools.cache
def importer() -> pathlib.Path:
    return venvs.made("importer", venvs.newest_python() or sys.executable)


@functools.cache
def node() -> pathlib.Path | None:
    """The virtual environment with the oldest Python of a node that is here; None when that is .venv's."""
    python = venvs.node_python()
    return venvs.made("node", python) if python else None


def collection(root: pathlib.Path) -> pathlib.Path:
    return root / "ansible_collections" / "corral" / "node"


def artifact() -> pathlib.Path:
    return next(GROUND.glob("*.tar.gz"))


def environment(root: pathlib.Path) -> dict[str, str]:
    """A user's who has no other collection and no configuration."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON", "MOLECULE"))}
    own["HOME"] = str(GROUND / "home")
    own["PATH"] = os.pathsep.join([str(user() / "bin"), *setup.search_path()])
    own["ANSIBLE_COLLECTIONS_PATH"] = str(root)
    own["NO_COLOR"] = own["ANSIBLE_NOCOLOR"] = "1"
    return own


def say(*command: str, root: pathlib.Path = BARE, cwd: pathlib.Path = GROUND) -> str | None:
    """What a tool of the user's says; None when it fails."""
    return answer([str(user() / "bin" / command[0]), *command[1:]], cwd, environment(root))


# The steps


def prepare() -> Tally:
    """Make the virtual environments, which are no test, and an empty ground."""
    venvs.prune()
    with futures.ThreadPoolExecutor() as pool:
        for made in [pool.submit(make) for make in (newest, oldest, importer, node)]:
            made.result()
    shutil.rmtree(GROUND, ignore_errors=True)
    (GROUND / "home").mkdir(parents=True)
    return Tally()


def build() -> Tally:
    """ansible-galaxy builds from the checkout, with all that lies about in it."""
    built = say("ansible-galaxy", "collection", "build", "--output-path", str(GROUND), str(setup.CHECKOUT))
    return one_test(built)


def contents() -> Tally:
    """All that is needed, and nothing that git does not know or that only a checkout needs."""
    with tarfile.open(artifact()) as tar:
        names = {member.name for member in tar if not member.isdir()} - {"FILES.json", "MANIFEST.json"}
    known = set(ansible_test.listed())
    odd = [name for name in names if name not in known or name.split("/")[0] not in SHIPPED | NEEDED]
    missing = [name for name in known - names if name.split("/")[0] in NEEDED]
    return one_test(not odd and not missing, f"does not belong: {sorted(odd)}; is missing: {sorted(missing)}")


def install() -> Tally:
    """ansible-galaxy installs it; a copy is stripped to what a collection must do with."""
    words = ["collection", "install", "--offline", "--collections-path", str(INSTALLED), str(artifact())]
    if say("ansible-galaxy", *words, root=INSTALLED) is None:
        return Tally(failed=1)
    for name in NEEDED:
        shutil.copytree(collection(INSTALLED) / name, collection(BARE) / name)
    return Tally(passed=1)


def documentation() -> Tally:
    """ansible-doc knows every plugin and role that is there, and nothing is wrong with what it reads."""
    for kind in KINDS:
        names = named(kind)
        said = say("ansible-doc", "--type", kind, "--json", *sorted(names))
        if said is None or set(json.loads(said)) != names:
            return one_test(None, f"ansible-doc --type {kind}: wanted {sorted(names)}, and it said:\n{said}")
        listed = say("ansible-doc", "--type", kind, "--list", "--json", "corral.node")
        if listed is None or set(json.loads(listed)) != names:
            return one_test(None, f"ansible-doc --type {kind} --list: wanted {sorted(names)}, and it said:\n{listed}")
    return Tally(passed=1)


def named(kind: str) -> set[str]:
    """The collection's plugins or roles of a kind, as its users name them."""
    return {f"corral.node.{path.stem}" for path in collection(BARE).glob(KINDS[kind])}


def offered() -> set[str]:
    """All that users name."""
    return set().union(*map(named, KINDS))


def syntax() -> Tally:
    names = sorted(path.stem for path in (collection(BARE) / "playbooks").glob("*.yml"))
    books = [f"corral.node.{name}" for name in names]
    return one_test(books and say("ansible-playbook", "--syntax-check", "--inventory", "localhost,", *books))


def here() -> str:
    """This machine as a node, with the oldest Python that it has."""
    python = venvs.node_python() or sys.executable
    own = {"ansible_connection": "local", "ansible_python_interpreter": python, "ansible_become": False}
    return json.dumps(own)


def module() -> Tally:
    """A module runs from the stripped collection, in check mode on this machine."""
    said = say(
        "ansible", "localhost", "--inventory", "localhost,", "--check", "--extra-vars", here(),
        "--module-name", "corral.node.topology_info",
    )  # fmt: skip
    return one_test(said and '"topology": {' in said, f"topology_info said:\n{said}")


def drift() -> Tally:
    """A playbook runs from the stripped collection: modules, plugins, templates; it changes nothing on this machine."""
    report = GROUND / "drift.json"
    more = {"corral_profile_file": str(setup.CHECKOUT / "examples" / "audit.yml"), "corral_report_file": str(report)}
    said = say(
        "ansible-playbook", "corral.node.drift", "--inventory", "localhost,", "--check", "--extra-vars", here(),
        "--extra-vars", json.dumps(more),
    )  # fmt: skip
    if said is None or not report.is_file():
        return one_test(None, f"no report; it said:\n{said}")
    host = json.loads(report.read_text(encoding="utf-8"))["hosts"]["localhost"]
    return one_test(host["verdict"] in ("in_sync", "drift", "unknown", "refused"), f"{host['verdict']}: {said}")


def galaxy() -> Tally:
    """What Galaxy does with an upload; it succeeds with warnings, too, so that they count. ansible-lint runs below."""
    env = {**environment(GROUND / "empty"), "GALAXY_IMPORTER_RUN_ANSIBLE_LINT": "False"}
    env["PATH"] = os.pathsep.join([str(importer() / "bin"), *setup.search_path()])
    said = answer([str(importer() / "bin" / "python"), "-m", "galaxy_importer.main", str(artifact())], GROUND, env)
    if said is None or any(line.startswith(("WARNING", "ERROR")) for line in said.splitlines()):
        return one_test(None, f"galaxy-importer said:\n{said}")
    result = json.loads((GROUND / "importer_result.json").read_text(encoding="utf-8"))
    missing = offered() - {f"corral.node.{content['name']}" for content in result["contents"]}
    return one_test(not missing, f"galaxy-importer missed {sorted(missing)}")


def changelog() -> Tally:
    """A release of the checkout as it is: every module, plugin and role gets into CHANGELOG.md."""
    if not newest():
        return cannot(NO_NEWEST)
    tree = ansible_test.fresh_tree()
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)  # its files are taken from git
    words = ["release", "--update-existing", "--reload-plugins"]
    if say("antsibull-changelog", *words, root=tree.parents[2], cwd=tree) is None:
        return Tally(failed=1)
    text = (tree / "CHANGELOG.md").read_text(encoding="utf-8").replace("\\", "")  # Markdown's escapes: corral\\.node
    missing = [name for name in offered() if f"* {name} - " not in text]
    return one_test(not missing, f"CHANGELOG.md would not have {sorted(missing)}")


def lint() -> Tally:
    """ansible-lint over what is shipped, by the checkout's rules."""
    rules = ["--config-file", str(setup.CHECKOUT / ".ansible-lint")]
    return one_test(say("ansible-lint", *LINT, *rules, root=INSTALLED, cwd=collection(INSTALLED)))


def docs() -> Tally:
    return one_test(say("antsibull-docs", *DOCS, root=INSTALLED, cwd=collection(INSTALLED)))


def sanity() -> Tally:
    """The sanity tests of the newest ansible-core that depend on its version; .venv's has run all of its own, and with older Pythons."""
    venv = newest()
    if not venv:
        return cannot(NO_NEWEST)
    words = [] if os.environ.get("CORRAL_LONG") else [f"--test={name}" for name in OF_THE_VERSION]
    return ansible_test.sanity(["--python", f"3.{venvs.minor_of(venv)}", *words], venv)


def old_playbooks() -> Tally:
    """The role, the playbooks and the filters under the oldest ansible-core; one case of each test that depends on it."""
    venv = oldest()
    if not venv:
        return cannot(NO_OLDEST)
    chosen = () if os.environ.get("CORRAL_LONG") else ("--one-case-each", "-k", " or ".join(OF_THE_CORE))
    return unit_tests(venv, *chosen, *(f"tests/unit/{name}" for name in PLAYBOOKS), "tests/unit/plugins/filter")


def old_python() -> Tally:
    """The tests of what a node runs, one case of each: another Python may not know some code, and all cases of a test run the same."""
    venv = node()
    if not venv:
        return cannot("no Python older than that of .venv here")
    left_out = (
        [] if os.environ.get("CORRAL_LONG") else ["--one-case-each", *(f"--ignore={PIPELINE}/{name}" for name in LONG)]
    )
    return unit_tests(venv, *left_out, "tests/unit/plugins/module_utils")


def new_python() -> Tally:
    venv = newest()
    left_out = [] if os.environ.get("CORRAL_LONG") else [f"--exclude={PIPELINE}/{name}" for name in LONG]
    return ansible_test.units(venv, venv, *left_out) if venv else cannot(NO_NEWEST)


def steps() -> list[Step]:
    """In their order: each takes what those before it left."""
    return [
        Step("virtual environments", prepare),
        Step("ansible-galaxy build", build),
        Step("built collection", contents),
        Step("ansible-galaxy install", install),
        Step("bare: ansible-doc", documentation),
        Step("bare: playbooks' syntax", syntax),
        Step("bare: topology_info", module),
        Step("bare: drift", drift),
        Step("galaxy-importer", galaxy),
        Step("newest: ansible-lint", lint),
        Step("newest: antsibull-docs", docs),
        Step("newest: changelog", changelog),
        Step("newest: sanity", sanity),
        Step("oldest ansible-core", old_playbooks),
        Step("oldest Python: unit tests", old_python),
    ]


def units() -> list[Step]:
    """Beside `make test`: .venv and the oldest Python have run these tests there, and VMs have nodes with newer ones."""
    return [Step("newest: unit tests", new_python)]
