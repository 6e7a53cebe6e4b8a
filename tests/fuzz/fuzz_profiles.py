# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles, as text and as the data of composed layers: planned on a described machine, or refused."""

from __future__ import annotations

import json
import random
import typing as t

import described
import mutation
import yaml
from _core.cli import profile_file
from _core.host.files import Host
from _core.model.profile import compose, profile
from _core.model.values.errors import CorralError
from _core.pipeline import planning
from _core.reports import change_text, cpu_map
from fuzz_target import Outcome, Target
from shared_data import REPOSITORY

EXAMPLES = sorted(path for path in (REPOSITORY / "examples").glob("*.yml") if path.name != "prometheus-rules.yml")


class OnMachine(Target):
    """Machines as folders, and the profiles of examples/."""

    def prepare(self) -> None:
        self.texts = [path.read_text(encoding="utf-8") for path in EXAMPLES]
        self.data = [yaml.safe_load(text) for text in self.texts]
        self.machines = []
        for path in sorted(described.FOLDER.glob("*.yml")):
            root = self.folder / path.stem
            for name, text in described.files(path).items():
                file = root / name[1:]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"{text}\n")
            self.machines.append(str(root))

    def planned(self, data: t.Any, machine: str) -> Outcome:
        """How far the data of a profile got on a machine."""
        depth = "refused by the parser"
        try:
            declared = profile.parse(data)
            again = profile.to_data(declared)
            if profile.to_data(profile.parse(json.loads(json.dumps(again)))) != again:
                return Outcome(depth, wrong="to_data() and parse() do not agree")
            depth = "refused by the machine"
            host = Host(machine, clock=lambda: 10_000.0, uptime=lambda: 1000.0)
            context = planning.compile_profile(host, declared, fresh=True)
            depth = "refused by the plan"
            plan = planning.plan_profile(host, context)
        except CorralError as error:
            return Outcome(depth, (str(error), json.dumps([problem._asdict() for problem in error.problems])))
        drawn = cpu_map.cpu_map(context.topology, context.pools, context.grants)
        return Outcome("planned", ("\n".join([*change_text.lines(plan.changes), *plan.notes, *drawn]),))


class ProfileText(OnMachine):
    def make(self, chance: random.Random) -> t.Any:
        text = chance.choice(self.texts)
        if chance.random() < 0.3:
            text = json.dumps(yaml.safe_load(text), indent=1)
        return mutation.mutated_text(chance, text), chance.randrange(len(self.machines))

    def run(self, data: t.Any) -> Outcome:
        text, machine = data
        try:
            loaded = profile_file.load(text, "/etc/corral/profile.yml")
        except CorralError as error:
            return Outcome("refused as text", (str(error),))
        return self.planned(loaded, self.machines[machine])


class ProfileLayers(OnMachine):
    def make(self, chance: random.Random) -> t.Any:
        mild = chance.random() < 0.7
        layers = [mutation.grafted(chance, chance.choice(self.data), self.data)]
        while chance.random() < 0.4 and len(layers) < 4:
            other = chance.choice(self.data)
            some = {key: value for key, value in other.items() if chance.random() < 0.3}
            layers.append(mutation.grafted(chance, some, self.data) if some else some)
        if not mild:
            layers[0] = mutation.mutated_data(chance, layers[0])
        return layers, chance.randrange(len(self.machines))

    def run(self, data: t.Any) -> Outcome:
        layers, machine = data
        try:
            composed = compose.compose([compose.Layer(f"layer {number}", one) for number, one in enumerate(layers)])
        except CorralError as error:
            return Outcome("refused by the composition", (str(error),))
        return self.planned(composed.data, self.machines[machine])


TARGETS = {"profile-text": ProfileText, "profile-layers": ProfileLayers}
