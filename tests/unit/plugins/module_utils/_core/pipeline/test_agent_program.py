# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An upgrade of the agent: whatever ends it, the program that the link leads to is whole, and it is really run here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path
from unittest import mock

import node
import pytest
import runs
from _core import main
from _core.host import command
from _core.host.agent import program_check
from _core.host.files import Host
from _core.host.plan import apply_step
from _core.managers.agent import agent_install
from _core.model.agent import agent_program
from _core.model.agent.agent_units import COMMAND, FACT, FOLDER, LAUNCHER, RELEASES
from _core.model.plan.plan import FILES, RELOAD, Change, Outcome, Plan, Step
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning
from _core.reports import change_text
from example_counts import in_turn

Make = t.Callable[..., node.Node]

MAIN = """
import importlib
import sys

RELEASE = "{release}"


def main(words):
    if words == ["wait"]:
        print("began", flush=True)
        sys.stdin.readline()
    found = {{importlib.import_module(name).RELEASE for name in {modules}}}
    print(*found)
    return 0 if found == {{RELEASE}} else 1
"""


def core(release: str) -> dict[str, str]:
    """A core whose files all belong together. What is a file of one release is a folder of the next one."""
    parts = ["shared", f"only_{release}", "reports" if release in ("first", "third") else "reports.explain"]
    modules = [f"_core.{part}" for part in parts]
    files = {f"{name.replace('.', '/')}.py": f'RELEASE = "{release}"\n' for name in modules}
    return {**files, "_core/main.py": MAIN.format(release=release, modules=modules)}


def install(host: Host, release: str) -> Outcome:
    return runs.install(host, core(release))


def name_of(release: str) -> str:
    return agent_program.program(core(release), runs.OPTIONS.python).name


def asked(fake: node.Node) -> str:
    """Which release answers: a process as the units start it loads each of its modules."""
    words = [sys.executable, "-I", "-S", "-B", f"{fake.root}{LAUNCHER}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def folders(fake: node.Node) -> set[str]:
    return set(os.listdir(f"{fake.root}{RELEASES}"))


# The program as it lay before there were releases: in FOLDER itself, with a record for each file.

OLD_LAUNCHER = """
import os, sys
sys.path.insert(0, os.path.dirname(__file__))
from _core import main
raise SystemExit(main.main(sys.argv[1:]))
"""


def install_as_before(host: Host) -> None:
    files = {f"{FOLDER}/{name}": text for name, text in core("first").items()}
    steps = [Step("file", path, text, FILES) for path, text in files.items()]
    steps += [
        Step("file", LAUNCHER, OLD_LAUNCHER, FILES, mode=0o755),
        Step("file", "/etc/corral/agent.json", json.dumps(runs.OPTIONS._asdict(), sort_keys=True) + "\n", FILES),
        Step("link", COMMAND, LAUNCHER, FILES),
        Step("compile", FOLDER, runs.OPTIONS.python, RELOAD, 1),
    ]
    units = agent_install.plan(host, runs.OPTIONS)
    program = Change(agent_install.NAME, FOLDER, "program", None, "1", "", FOLDER, tuple(steps))

    def plan() -> Plan:
        return planning.finish(host, None, [units._replace(changes=(program, *units.changes))], ())

    assert not applying.apply(host, plan(), plan).error


class Case(t.NamedTuple):
    """What was installed one after the other, and what is installed then: what runs before and after it."""

    before: tuple[str, ...]
    then: str


CASES = {
    "upgrade": Case(("first", "second"), "third"),
    "the first one": Case(("first",), "second"),
    "older layout": Case(("layout",), "second"),
    "older layout, the next one": Case(("layout", "second"), "third"),
    "rollback": Case(("first", "second"), "first"),
}


def prepared(case: Case, make: Make) -> node.Node:
    fake = make()
    for release in case.before:
        if release == "layout":
            install_as_before(fake.host())
        else:
            assert not install(fake.host(), release).error
    return fake


def seen(fake: node.Node) -> dict[str, str]:
    everything = fake.fingerprint(*node.STATE)
    return {path: state for path, state in everything.items() if "__pycache__" not in path}


FAILS = ("torn", "killed", "error")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fail", FAILS)
def test_whatever_ends_an_upgrade_the_old_program_or_the_new_one_runs(name: str, fail: str, make: Make) -> None:
    case = CASES[name]
    clean = make().fingerprint()
    first = prepared(case, make)
    undisturbed = first.clone(first.root.with_name("undisturbed"))
    host = undisturbed.host()
    install(host, case.then)
    wanted, old, answers = seen(undisturbed), asked(first), []
    # Until the swap the old one runs, and a way back has little to do before it.
    swap = host.acts.index(f"write_link {LAUNCHER}") + 1
    for turn, number in enumerate(sorted({*in_turn(len(host.acts), fail, FAILS), swap - 1, swap})):
        fake = first.clone(first.root.with_name(f"node-{number}"))
        with pytest.raises(node.Killed) if fail != "error" else contextlib.suppress(CorralError, OSError):
            install(fake.host(fail, number), case.then)
        answers.append(asked(fake))
        if turn % 2 == 0:
            outcome = runs.remove(fake.host())
            assert (outcome.error, outcome.leftovers) == ("", ())
            assert node.different(clean, fake.fingerprint()) == []
            continue
        outcome = install(fake.host(), case.then)
        assert (outcome.error, outcome.remaining, asked(fake)) == ("", (), case.then)
        assert node.different(wanted, seen(fake)) == []
        assert install(fake.host(), case.then).applied == ()
    assert answers == [old] * answers.count(old) + [case.then] * answers.count(case.then)
    assert old in answers
    assert case.then in answers or fail != "killed"


def test_a_process_that_began_with_the_old_program_ends_with_it(make: Make) -> None:
    fake = prepared(CASES["the first one"], make)
    words = [sys.executable, "-I", "-S", "-B", f"{fake.root}{LAUNCHER}", "wait"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as began:
        assert began.stdout is not None
        assert began.stdout.readline() == "began\n"
        assert not install(fake.host(), "second").error
        assert asked(fake) == "second"
        assert (began.communicate("\n")[0], began.returncode) == ("first\n", 0)
    assert folders(fake) == {name_of("first"), name_of("second")}
    assert not install(fake.host(), "third").error
    assert folders(fake) == {name_of("second"), name_of("third")}


def test_a_rollback_to_the_release_before_writes_no_file_of_it(make: Make) -> None:
    fake = prepared(CASES["rollback"], make)
    host = fake.host()
    assert not install(host, "first").error
    assert [path for path in host.writes if path.startswith(FOLDER)] == [LAUNCHER]
    assert asked(fake) == "first"


def test_an_upgrade_is_one_line_and_check_mode_foretells_it(make: Make) -> None:
    fake = prepared(CASES["the first one"], make)
    host = fake.host()
    plan = planning.plan_agent(host, runs.OPTIONS, core("second"), tag=sys.implementation.cache_tag)
    assert host.writes == []
    line = f"~ agent {FOLDER} program: {name_of('first')} -> {name_of('second')} (5 files)"
    assert [change_text.line(change) for change in plan.changes] == [line]
    assert change_text.diff(plan.changes)["after"] == f"agent {FOLDER} program: {name_of('second')}\n"
    assert install(fake.host(), "second").applied == plan.changes
    layout = prepared(CASES["older layout"], make)
    change, fact = planning.plan_agent(layout.host(), runs.OPTIONS, core("second")).changes
    assert (change.actual, fact.subject, fact.actual) == ("without a release's name", FACT, None)


def folder_of(release: str) -> str:
    return f"{RELEASES}/{name_of(release)}"


def linked_to_the_same(fake: node.Node) -> None:
    path = f"{folder_of('first')}/_core/shared.py"
    fake.put("/srv/shared.py", fake.get(path))
    fake.host().write_link(path, "/srv/shared.py")


TAMPERED: dict[str, tuple[t.Callable[[node.Node], object], str]] = {
    "a file": (lambda fake: fake.put(f"{folder_of('first')}/_core/shared.py", "RELEASE = 5\n"), "1 of 5 files differ"),
    "no file": (lambda fake: fake.drop(f"{folder_of('first')}/_core/shared.py"), "1 of 5 files differ"),
    "who may write it": (
        lambda fake: os.chmod(f"{fake.root}{folder_of('first')}/_core/shared.py", 0o666),
        "1 of 5 files differ",
    ),
    "who may run it": (lambda fake: os.chmod(f"{fake.root}{folder_of('first')}/corral", 0o644), "1 of 5 files differ"),
    "a link to the same text": (linked_to_the_same, "1 of 5 files differ"),
    "the launcher": (lambda fake: fake.put(f"{folder_of('first')}/corral", "#!/bin/sh\n"), "1 of 5 files differ"),
    "another link": (lambda fake: fake.host().write_link(LAUNCHER, "/bin/true"), "None"),
    "another file of the release": (
        lambda fake: fake.host().write_link(LAUNCHER, f"releases/{name_of('first')}/_core/main.py"),
        name_of("first"),
    ),
    "no link": (lambda fake: fake.drop(LAUNCHER), "None"),
    "no release": (lambda fake: shutil.rmtree(f"{fake.root}{folder_of('first')}"), "5 of 5 files differ"),
    "not compiled": (lambda fake: shutil.rmtree(f"{fake.root}{folder_of('first')}/_core/__pycache__"), "not compiled"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_changed_by_hand_is_drift_and_is_mended(what: str, make: Make) -> None:
    clean = make().fingerprint()
    fake = prepared(CASES["the first one"], make)
    tamper, said = TAMPERED[what]
    tamper(fake)
    outcome = install(fake.host(), "first")
    assert [change.property for change in outcome.applied] == ["program"]
    assert str(outcome.applied[0].actual).endswith(said)
    assert (outcome.remaining, asked(fake)) == ((), "first")
    assert runs.remove(fake.host()).leftovers == ()
    assert node.different(clean, fake.fingerprint()) == []


def test_a_converged_run_reads_each_file_once_and_a_tick_none(make: Make) -> None:
    fake = runs.converged(prepared(CASES["rollback"], make))
    for look, count in ((lambda host: install(host, "second"), 5), (runs.tick, 0)):
        host = fake.host()
        # What a full look compares with the digests of the installation: test_program_check.py.
        unchecked = mock.patch.object(program_check, "findings", return_value=[])
        with unchecked, mock.patch.object(Host, "read_bytes", autospec=True, side_effect=Host.read_bytes) as read:
            look(host)
        assert (
            len([path for dummy, path in (call.args[:2] for call in read.call_args_list) if path.startswith(FOLDER)])
            == count
        )


@pytest.mark.parametrize(
    "place", [f"{FOLDER}/mine.py", f"{FOLDER}/_core/shared.py", f"{RELEASES}/mine", "in a release"]
)
def test_files_that_corral_did_not_make_stay(place: str, make: Make) -> None:
    fake = make()
    if place != "in a release":
        fake.put(place, "mine\n")
    before = fake.fingerprint()
    for release in ("first", "second", "third", "first"):
        if place == "in a release" and release == "second":
            fake.put(f"{folder_of('first')}/_core/mine", "mine\n")
        outcome = install(fake.host(), release)
        assert (outcome.error, outcome.remaining, asked(fake)) == ("", (), release)
    assert runs.remove(fake.host()).leftovers == ()
    left = node.different(before, fake.fingerprint())
    if place == "in a release":
        assert fake.get(f"{folder_of('first')}/_core/mine") == "mine\n"
        left = [
            line for line in left if not f"{folder_of('first')}/_core/mine".startswith(f"/{line.partition(':')[0]}")
        ]
    assert left == []


@pytest.mark.parametrize("place", ["_core/vendored", "_core/__pycache__", "__pycache__"])
def test_a_link_in_a_release_is_not_followed(place: str, make: Make) -> None:
    fake = prepared(Case(("first", "second"), ""), make)
    for name in ("deep/__pycache__/a.pyc", "__pycache__/b.pyc", "c.pyc", "data"):
        fake.put(f"/srv/others/{name}", "others'\n")
    path = f"{fake.root}{folder_of('first')}/{place}"
    shutil.rmtree(path, ignore_errors=True)
    os.symlink(f"{fake.root}/srv/others", path)
    assert install(fake.host(), "third").error == ""
    runs.remove(fake.host())
    left = [str(one.relative_to(fake.root)) for one in Path(fake.root, "srv").rglob("*") if one.is_file()]
    assert sorted(left) == [
        f"srv/others/{name}" for name in ("__pycache__/b.pyc", "c.pyc", "data", "deep/__pycache__/a.pyc")
    ]


def test_a_file_of_others_that_does_not_compile_keeps_nothing_from_being_mended(make: Make) -> None:
    fake = prepared(CASES["the first one"], make)
    fake.put(f"{folder_of('first')}/broken.py", "print 'of another Python'\n")
    fake.put(f"{folder_of('first')}/_core/shared.py", "RELEASE = 5\n")
    assert install(fake.host(), "first").error == ""
    assert asked(fake) == "first"


def test_what_others_had_in_the_place_of_the_launcher_comes_back(make: Make) -> None:
    fake = make()
    fake.put(LAUNCHER, "#!/bin/sh\n")
    before = fake.fingerprint()
    for release in ("first", "second", "third"):
        assert not install(fake.host(), release).error
    assert runs.remove(fake.host()).leftovers == ()
    assert node.different(before, fake.fingerprint()) == []


OTHERS: dict[str, tuple[str, t.Callable[[node.Node], object]]] = {
    "a file as the command": (COMMAND, lambda fake: fake.put(COMMAND, "#!/bin/sh\n")),
    "a link as the command": (COMMAND, lambda fake: fake.host().write_link(COMMAND, "/opt/other/corral")),
    "a file as the local fact": (FACT, lambda fake: fake.put(FACT, "{}")),
    "a link as the local fact": (FACT, lambda fake: fake.host().write_link(FACT, "/opt/other/fact")),
    "a folder as the launcher": (LAUNCHER, lambda fake: fake.put(f"{LAUNCHER}/file", "")),
    "a file as the releases": (RELEASES, lambda fake: fake.put(RELEASES, "")),
    "a file as the folder": (FOLDER, lambda fake: fake.put(FOLDER, "")),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_others_have_in_its_place_is_refused_before_the_first_write(what: str, make: Make) -> None:
    fake = make()
    place, put = OTHERS[what]
    put(fake)
    host = fake.host()
    with pytest.raises(CorralError, match=f"{place}: .*Corral did not make this"):
        install(host, "first")
    assert host.writes == []


def test_its_own_command_that_leads_elsewhere_is_mended(make: Make) -> None:
    fake = prepared(CASES["the first one"], make)
    fake.host().write_link(COMMAND, "/opt/other/corral")
    assert not install(fake.host(), "first").remaining
    assert fake.host().link(COMMAND) == LAUNCHER


def test_a_launcher_that_is_an_absolute_link_names_its_release(make: Make) -> None:
    fake = prepared(CASES["upgrade"], make)
    fake.host().write_link(LAUNCHER, f"{folder_of('second')}/corral")
    outcome = install(fake.host(), "third")
    assert [change.actual for change in outcome.applied] == [name_of("second")]
    assert (asked(fake), folders(fake)) == ("third", {name_of("second"), name_of("third")})


def test_the_programs_of_the_real_core_are_whole(make: Make) -> None:
    """All that is shipped answers on a node, and so does what an upgrade that was killed has left."""
    source = Path(main.__file__).parent
    files = {f"_core/{path.relative_to(source)}": path.read_text(encoding="utf-8") for path in source.rglob("*.py")}
    newer = {**files, "_core/constants.py": files["_core/constants.py"] + "\n"}
    modules = [name[: -len(".py")].replace("/", ".") for name in files]
    load = (
        f"import sys, importlib; sys.path.insert(0, sys.argv[1]); [importlib.import_module(name) for name in {modules}]"
    )
    first = make()
    assert not runs.install(first.host(), files).error
    old = os.readlink(f"{first.root}{LAUNCHER}")
    undisturbed = first.clone(first.root.with_name("undisturbed")).host()
    assert not runs.install(undisturbed, newer).error
    swap = undisturbed.acts.index(f"write_link {LAUNCHER}") + 1
    for number in (swap // 2, swap):
        fake = first.clone(first.root.with_name(f"node-{number}"))
        with pytest.raises(node.Killed):
            runs.install(fake.host("killed", number), newer)
        launcher = f"{fake.root}{LAUNCHER}"
        assert (os.readlink(launcher) == old) == (number < swap)
        words = [sys.executable, "-I", "-B", launcher, "--help"]
        assert "reconcile" in subprocess.run(words, capture_output=True, text=True, check=True).stdout
        words = [sys.executable, "-I", "-B", "-c", load, os.path.dirname(os.path.realpath(launcher))]
        subprocess.run(words, check=True)


def test_what_was_compiled_is_on_the_disk_before_the_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_core/main.py", "_core/model/plan.py"):
        (folder / "release" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "release" / name).write_text("RELEASE = 1\n")
    synced: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file).st_ino, os.fstat(file).st_size)))
    host = Host(str(folder), run=command.run_command)
    where = "_core/main.py\n_core/model/plan.py"
    apply_step.perform(host, Step("compile", "/release", sys.executable, FILES, name=where))
    compiled = sorted((folder / "release").rglob("*.pyc"))
    assert len(compiled) == 2
    for path in compiled:
        assert (path.stat().st_ino, path.stat().st_size) in synced
        assert {path.parent.stat().st_ino, path.parent.parent.stat().st_ino} <= {number for number, dummy in synced}
