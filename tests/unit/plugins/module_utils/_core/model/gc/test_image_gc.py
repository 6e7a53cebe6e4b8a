# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's image garbage collection: its cases, and what holds for any images."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.gc import image_gc
from _core.model.gc.image_gc import Image, ImageLimits
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from hypothesis import assume, given
from hypothesis import strategies as st
from shared_data import cases

# The kubelet's moments are nanoseconds; so are these, as whole numbers: the cases try both sides of a limit.
NOW = 10**20
SECOND = 10**9


def nanoseconds(seconds: float) -> int:
    return round(seconds * SECOND)


def image(row: dict[str, t.Any]) -> Image:
    used = row.get("last_used_age_s")
    return Image(
        row["id"],
        row["size"],
        row["in_use"],
        row["pinned"],
        NOW - nanoseconds(row.get("first_detected_age_s", 0)),
        None if used is None else NOW - nanoseconds(used),
    )


def limits_of(row: dict[str, t.Any]) -> ImageLimits:
    ages = (nanoseconds(row.get(name, 0)) for name in ("min_age_s", "max_age_s"))
    return ImageLimits(row.get("high", 0), row.get("low", 0), *ages)


def collected(case: dict[str, t.Any], limits: ImageLimits) -> tuple[list[str], int, str]:
    """What goes of a case, the bytes that its disk pass gains, and the error."""
    gone: list[str] = []

    def remove(one: Image) -> int:
        gone.append(one.id)
        return one.size

    operation = case.get("op", "garbage_collect")
    found = image_gc.candidates(map(image, case["images"]))
    if operation == "free_space":
        return gone, image_gc.free(found, case["bytes"], limits, NOW, remove), ""
    if operation == "delete_unused":
        return gone, image_gc.free(found, float("inf"), limits, NOW, remove), ""
    old = image_gc.too_old(found, limits, NOW, nanoseconds(case.get("kubelet_up_s", 0)), protect=False)
    for one in old:
        remove(one)
    if operation == "free_old_images":
        return gone, 0, ""
    capacity, available = (case.get(name, case.get(f"{name}_bytes")) for name in ("capacity", "available"))
    try:
        need = image_gc.bytes_to_free(capacity, available, limits)
    except ValueError as error:
        return gone, 0, str(error)
    if need is None:
        return gone, 0, ""
    gained = image_gc.free([one for one in found if one not in old], need, limits, NOW, remove)
    return gone, gained, f"{gained} of {need}" if gained < need else ""


@pytest.mark.parametrize("case", cases("image_gc.json", lambda case: case.get("op") != "validate_policy"))
def test_the_kubelets_own_cases(case: dict[str, t.Any]) -> None:
    gone, gained, error = collected(case, limits_of(case))
    assert sorted(gone) == sorted(case["expect_removed"])
    assert bool(error) is bool(case.get("expect_error"))
    if "expect_freed" in case:
        assert gained == case["expect_freed"]


@pytest.mark.parametrize("case", cases("image_gc_generated.json"))
def test_whole_passes_of_the_kubelets(case: dict[str, t.Any]) -> None:
    gone, dummy, error = collected(case, limits_of(case["policy"]))
    assert sorted(gone) == case["removed"]
    assert bool(error) is bool(case["error"])


@pytest.mark.parametrize("case", cases("image_gc.json", lambda case: case.get("op") == "validate_policy"))
def test_thresholds_that_the_kubelet_refuses_are_no_profile(case: dict[str, t.Any]) -> None:
    data = {"name": "edge", "gc": {"images": {"high": case["high"], "low": case["low"]}}}
    if case["expect_error_text"] is None:
        found = profile.parse(data).gc
        assert found is not None
        assert found.images is not None
        assert (found.images.high, found.images.low) == (case["high"], case["low"])
        return
    with pytest.raises(CorralError) as refused:
        profile.parse(data)
    wrong = "high" if "High" in case["expect_error_text"].split(",")[0].split("can")[0] else "low"
    assert f"gc.images.{wrong}" in [problem.path for problem in refused.value.problems]


def test_a_file_system_without_capacity_is_an_error() -> None:
    with pytest.raises(ValueError, match="no capacity"):
        image_gc.bytes_to_free(0, 0, ImageLimits(85, 80))


# What holds for any images: times are small whole numbers, so that equal ones come about.

HOUR = 3600
times = st.integers(0, HOUR)
images = st.lists(
    st.builds(Image, st.uuids().map(str), st.integers(0, 1000), st.booleans(), st.booleans(), times, st.none() | times),
    max_size=12,
    unique_by=lambda one: one.id,
)
policies = st.builds(ImageLimits, st.just(85), st.just(80), st.integers(0, HOUR), st.integers(0, HOUR))


def freed(found: list[Image], need: int, limits: ImageLimits, gains: dict[str, int]) -> list[Image]:
    """The images that are removed for ``need`` bytes; what is not in ``gains`` is refused."""
    gone: list[Image] = []

    def remove(one: Image) -> int | None:
        if one.id not in gains:
            return None
        gone.append(one)
        return gains[one.id]

    total = image_gc.free(image_gc.candidates(found), need, limits, HOUR, remove)
    assert total == sum(gains[one.id] for one in gone)
    return gone


@given(found=images, limits=policies, need=st.integers(1, 5000), data=st.data())
def test_never_what_is_used_kept_or_young_and_never_one_more_than_it_takes(
    found: list[Image], limits: ImageLimits, need: int, data: st.DataObject
) -> None:
    gains = {one.id: data.draw(st.integers(0, one.size)) for one in found if data.draw(st.booleans())}
    gone = freed(found, need, limits, gains)
    for one in gone:
        assert not one.in_use
        assert not one.pinned
        assert HOUR - one.first_detected >= limits.min_age
        assert (one.last_used or 0) < HOUR
    gained = [gains[one.id] for one in gone]
    assert sum(gained[:-1]) < need or not gained
    assert [one.last_used or 0 for one in gone] == sorted(one.last_used or 0 for one in gone)
    if sum(gained) < need:
        left = [one for one in image_gc.candidates(found) if one.id in gains and one not in gone]
        assert all(image_gc.is_young(one, limits, HOUR) or (one.last_used or 0) >= HOUR for one in left)


@given(found=images, limits=policies, watched=times)
def test_age_removes_only_what_was_watched_for_longer_and_is_not_young(
    found: list[Image], limits: ImageLimits, watched: int
) -> None:
    free = image_gc.candidates(found)
    old = image_gc.too_old(free, limits, HOUR, watched)
    assume(limits.max_age)
    for one in old:
        assert watched > limits.max_age
        assert HOUR - one.first_detected >= limits.min_age
        assert HOUR - (one.first_detected if one.last_used is None else one.last_used) > limits.max_age
    if watched > limits.max_age:
        due = [one for one in free if one.last_used is not None and HOUR - one.last_used > limits.max_age]
        assert all(one in old or image_gc.is_young(one, limits, HOUR) for one in due)


@given(found=images, watched=times)
def test_without_an_age_limit_nothing_is_too_old(found: list[Image], watched: int) -> None:
    assert image_gc.too_old(found, ImageLimits(85, 80), HOUR, watched) == []


@given(capacity=st.integers(100, 1 << 60), part=st.floats(0, 1), low=st.integers(0, 99), data=st.data())
def test_what_is_asked_leads_down_to_the_low_threshold(
    capacity: int, part: float, low: int, data: st.DataObject
) -> None:
    high = data.draw(st.integers(low + 1, 100))
    available = min(int(capacity * part), capacity)
    need = image_gc.bytes_to_free(capacity, available, ImageLimits(high, low))
    used = image_gc.used_percent(capacity, available)
    assert 0 <= used <= 100
    assert (need is None) is (used < high)
    if need is not None:
        assert need >= 0
        # The kubelet rounds both: the last percent may be a byte short.
        assert image_gc.used_percent(capacity, available + need) <= low + (capacity * (100 - low) % 100 > 0)


@pytest.mark.parametrize(("high", "max_age", "off"), [(100, 0, True), (100, 60, False), (99, 0, False)])
def test_high_100_without_an_age_limit_is_off(high: int, max_age: int, *, off: bool) -> None:
    assert ImageLimits(high, 80, 0, max_age).off is off
