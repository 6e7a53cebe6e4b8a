# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The YAML that Corral writes: what PyYAML reads of it, and what a person sees."""

from __future__ import annotations

import re
import typing as t

import yaml
from _core.model.values import yaml_text
from _core.model.values.yaml_text import Off
from hypothesis import given
from hypothesis import strategies as st

SCALARS = st.one_of(
    st.integers(-(2**40), 2**40),
    st.booleans(),
    st.text(max_size=12),
    st.sampled_from(["0770", "0-1,4-5", "2Mi", "1e3", "0x10", "yes", "No", "null", "~", "1_000", "12:30", "a: b", "- a", "#", "=", "<<"]),
)  # fmt: skip
KEYS = st.text(min_size=1, max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=5)), max_leaves=20
)  # fmt: skip

DATA: dict[str, t.Any] = {
    "name": "n1",
    "cpu": {"reserved": {"cpus": "0-1", "slices": ["system.slice", "init.scope"]}, "whole_cores": False},
    "memory": {
        "hugepages": [{"size": "2Mi", "count": 32, "node": 0}, Off({"size": "1Gi", "count": 1}, ("1Gi: why",))],
        "mounts": [{"path": "/dev/hugepages", "pagesize": "2Mi", "size": "64Mi", "mode": "0770"}],
    },
    "pids": Off({"pid_max": 65536, "slices": {"machine.slice": 1000}}, ("first", "second")),
}

TEXT = """\
name: n1
cpu:
  reserved:
    cpus: "0-1"
    slices: [system.slice, init.scope]
  whole_cores: false
memory:
  hugepages:
    - {size: 2Mi, count: 32, node: 0}
    # 1Gi: why
    #- {size: 1Gi, count: 1}
  mounts:
    - path: /dev/hugepages
      pagesize: 2Mi
      size: 64Mi
      mode: "0770"
# first
# second
#pids:
#  pid_max: 65536
#  slices: {machine.slice: 1000}
"""


def test_it_is_what_a_person_would_write() -> None:
    assert yaml_text.text(DATA) == TEXT


def test_what_is_commented_out_is_not_there_and_is_yaml_without_its_marks() -> None:
    read = yaml.safe_load(yaml_text.text(DATA))
    assert set(read) == {"name", "cpu", "memory"}
    assert read["memory"]["hugepages"] == [{"size": "2Mi", "count": 32, "node": 0}]
    uncommented = re.sub(r"^( *)#(?! \w)", r"\1", TEXT, flags=re.MULTILINE)
    assert yaml.safe_load(uncommented)["pids"] == DATA["pids"].value
    assert yaml.safe_load(uncommented)["memory"]["hugepages"][1] == {"size": "1Gi", "count": 1}


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_data_reads_back_as_it_was(data: dict[str, t.Any]) -> None:
    assert (yaml.safe_load(yaml_text.text(data)) or {}) == data
