# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Podman answers as values, and what is no answer of Podman's."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.containers import podman_json
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
OF_ROWS: tuple[t.Callable[[t.Any], t.Any], ...] = (
    podman_json.images,
    podman_json.containers,
    podman_json.pods,
    podman_json.refusal,
)
OF_ANYTHING: tuple[t.Callable[[t.Any], t.Any], ...] = (
    podman_json.store,
    podman_json.store_of_image,
    podman_json.moment,
)


@given(anything | store | moments, st.lists(row, max_size=3))
def test_any_json_is_a_value_or_a_value_error(something: object, rows: list[dict[str, object]]) -> None:
    for parse in (*OF_ROWS, *OF_ANYTHING):
        data = rows if parse in OF_ROWS else something
        try:
            found = parse(data)
        except ValueError:
            continue
        if parse is podman_json.containers:
            podman_json.last_uses(found, 5.0)
        if parse is podman_json.store:
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
    assert podman_json.moment(value) == seconds


def container(**fields: object) -> dict[str, object]:
    return {
        "Id": ID,
        "Names": ["c"],
        "Image": "localhost/a:1",
        "ImageID": ID,
        "State": "exited",
        "Created": 100,
        **fields,
    }


def test_a_running_one_uses_its_image_now_and_a_dead_one_when_it_ended() -> None:
    zero = -62135596800
    rows = [
        container(ExitedAt=1_700_000_000),
        container(ImageID="b" * 64, State="running", ExitedAt=zero),
        container(ImageID="c" * 64, State="created", ExitedAt=zero),
        container(ImageID=ID, ExitedAt=1_600_000_000),
        container(ImageID="d" * 64, State="running", ExitedAt=1_600_000_000),  # started anew
    ]
    assert podman_json.last_uses(podman_json.containers(rows), 9e9) == {
        ID: 1_700_000_000,
        "b" * 64: 9e9,
        "c" * 64: 100,
        "d" * 64: 9e9,
    }


def test_an_image_of_two_names_is_one_and_none_is_no_name() -> None:
    rows = [{"Id": f"sha256:{ID}", "Names": ["a:1", "a:2"], "Size": 5}] * 2 + [
        {"Id": ID[::-1], "Names": ["<none>:<none>"]}
    ]
    assert [(image.id, image.names, image.size) for image in podman_json.images(rows)] == [
        (ID, ("a:1", "a:2"), 5),
        (ID[::-1], (), 0),
    ]


@pytest.mark.parametrize("identity", [None, 5, "", "../../x", "--all", "A" * 64, "a" * 65, "a\n"])
def test_what_has_no_id_is_no_answer(identity: object) -> None:
    with pytest.raises(ValueError, match="an item without an id"):
        podman_json.images([{"Id": identity}])


@pytest.mark.parametrize(
    ("driver", "upper", "place"),
    [
        ("overlay", "/var/lib/containers/storage/overlay/0f/diff", ("/var/lib/containers/storage", "overlay")),
        ("overlay", "/srv/overlay/overlay/0f/diff", ("/srv/overlay", "overlay")),
        ("overlay", "/srv/storage/overlay/0f", None),
        ("overlay", "overlay/0f/diff", None),
        ("overlay", "/srv\n/overlay/0f/diff", None),
        ("overlay", None, None),
        ("vfs", "/srv/overlay/0f/diff", None),
    ],
)
def test_the_folder_of_an_image_says_where_the_storage_is(
    driver: str, upper: object, place: tuple[str, str] | None
) -> None:
    assert podman_json.store_of_image({"GraphDriver": {"Name": driver, "Data": {"UpperDir": upper}}}) == place
    assert podman_json.store_of_image({"GraphDriver": {"Name": driver, "Data": None}}) is None


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], ""),
        ([{"ExitCode": 0, "Errors": None}], ""),
        ([{"ExitCode": 2, "Errors": ["image used by 1"]}], "image used by 1"),
        ([{"ExitCode": 1, "Errors": []}], "exit code 1"),
        ([{"Err": None}], ""),
        ([{"Err": "cannot remove"}], "cannot remove"),
    ],
)
def test_a_removal_that_was_answered_may_still_be_refused(rows: list[dict[str, object]], said: str) -> None:
    assert podman_json.refusal(rows) == said


HOSTILE = "\x1b[2J\n<0>forged\u202e\u2028\x9b\ud800"


def test_text_is_printable_where_it_comes_in() -> None:
    (image,) = podman_json.images([{"Id": ID, "Names": [HOSTILE], "Digest": HOSTILE, "RepoDigests": [HOSTILE]}])
    fields = {"Names": [HOSTILE], "Image": HOSTILE, "State": HOSTILE, "Labels": {HOSTILE: HOSTILE}}
    (one,) = podman_json.containers([container(**fields)])
    (pod,) = podman_json.pods([{"Id": ID, "Name": HOSTILE, "Created": 5, "Labels": {HOSTILE: HOSTILE}}])
    texts = [*image.names, *image.digests, one.name, one.image_name, one.state, pod.name]
    texts += [text for labels in (one.labels, pod.labels) for pair in labels.items() for text in pair]
    assert len(texts) == 11
    assert [text for text in texts if not text.isprintable()] == []


@pytest.mark.parametrize("fields", [{"Id": HOSTILE}, {"ImageID": HOSTILE}, {"Pod": HOSTILE}, {"Created": HOSTILE}])
def test_what_is_refused_is_named_in_printable_form(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="forged") as raised:
        podman_json.containers([container(**fields)])
    assert str(raised.value).isprintable()


def test_an_empty_storage() -> None:
    assert (podman_json.images([]), podman_json.containers([]), podman_json.pods([])) == ([], [], [])


LONG = "x" * (podman_json.LONGEST + 1)


@pytest.mark.parametrize(
    ("of", "data"),
    [
        (podman_json.pods, [{"Id": ID, "Created": 5, "Name": LONG}]),
        (podman_json.images, [{"Id": ID, "Names": [LONG]}]),
        (podman_json.images, [{"Id": ID, "Size": 1 << 63}]),
        (podman_json.store, {"store": {"graphRoot": "srv", "graphDriverName": "overlay"}}),
        (podman_json.store, {"store": {"graphRoot": "/srv", "graphDriverName": "../x"}}),
    ],
)
def test_what_is_out_of_bounds_is_no_value(of: t.Callable[[t.Any], t.Any], data: object) -> None:
    with pytest.raises(ValueError):
        of(data)


def test_a_row_of_another_length_is_none() -> None:
    with pytest.raises(ValueError, match="another length"):
        podman_json.named_rows([[1, 2], [1]], ("a", "b"))


def test_an_event_names_an_image_as_its_container_does() -> None:
    assert podman_json.event_uses([["a\x1b\nb", 5], [7, 5], []]) == {"a\\x1b\\nb": 5.0}
