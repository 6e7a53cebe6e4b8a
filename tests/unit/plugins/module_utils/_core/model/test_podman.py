# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Podman answers as values, and what is no answer of Podman's."""

from __future__ import annotations

import typing as t

import pytest
from _core.model import podman
from hypothesis import given
from hypothesis import strategies as st
from test_profile_anything import anything

ID = "0123456789ab" * 5 + "0123"
KEYS = st.sampled_from(
    ["Id", "Names", "Digest", "RepoDigests", "Size", "ReadOnly", "State", "ExitedAt", "Created", "Image", "ImageID", "Pod",
     "IsInfra", "Labels", "Name"]
)  # fmt: skip
row = st.dictionaries(KEYS, anything, max_size=6).map(lambda found: {"Id": ID, "Created": 5, **found})
store = st.dictionaries(st.just("store"), st.dictionaries(st.sampled_from(["graphRoot", "graphDriverName"]), anything))
moments = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})", fullmatch=True
)
PARSERS: tuple[t.Callable[[t.Any], t.Any], ...] = (
    podman.images,
    podman.containers,
    podman.pods,
    podman.store,
    podman.moment,
)


@given(anything | st.lists(row, max_size=3) | store | moments)
def test_any_json_is_a_value_or_a_value_error(data: object) -> None:
    for parse in PARSERS:
        try:
            found = parse(data)
        except ValueError:
            continue
        if parse is podman.containers:
            podman.last_uses(found, 5.0)
        if parse is podman.store:
            assert found[0].isprintable()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1_700_000_000, 1_700_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000),
        ("2023-11-14T22:13:20.418684904Z", 1_700_000_000),
        ("2023-11-14T23:43:20.5+01:30", 1_700_000_000),
        ("2023-11-14T17:13:20-05:00", 1_700_000_000),
    ],
)
def test_moments(value: object, seconds: float) -> None:
    assert podman.moment(value) == seconds


def container(**fields: object) -> dict[str, object]:
    return {
        "Id": ID,
        "Names": ["c"],
        "Image": "localhost/a:1",
        "ImageID": "a",
        "State": "exited",
        "Created": 100,
        **fields,
    }


def test_a_running_one_uses_its_image_now_and_a_dead_one_when_it_ended() -> None:
    zero = -62135596800
    rows = [
        container(ExitedAt=1_700_000_000),
        container(ImageID="b", State="running", ExitedAt=zero),
        container(ImageID="c", State="created", ExitedAt=zero),
        container(ImageID="a", ExitedAt=1_600_000_000),
        container(ImageID="d", State="running", ExitedAt=1_600_000_000),  # started anew
    ]
    assert podman.last_uses(podman.containers(rows), 9e9) == {"a": 1_700_000_000, "b": 9e9, "c": 100, "d": 9e9}


def test_an_image_of_two_names_is_one_and_none_is_no_name() -> None:
    rows = [{"Id": f"sha256:{ID}", "Names": ["a:1", "a:2"], "Size": 5}] * 2 + [
        {"Id": ID[::-1], "Names": ["<none>:<none>"]}
    ]
    assert [(image.id, image.names, image.size) for image in podman.images(rows)] == [
        (ID, ("a:1", "a:2"), 5),
        (ID[::-1], (), 0),
    ]


@pytest.mark.parametrize("identity", [None, 5, "", "../../x", "--all", "A" * 64, "a" * 65, "a\n"])
def test_what_has_no_id_is_no_answer(identity: object) -> None:
    with pytest.raises(ValueError, match="an item without an id"):
        podman.images([{"Id": identity}])


def test_an_empty_storage() -> None:
    assert (podman.images(None), podman.containers([]), podman.pods(None)) == ([], [], [])
