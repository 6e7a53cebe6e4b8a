# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A pass of garbage collection: the pass holds the lock LOCK, and removes the images and containers that are due.

A pass may be stopped at any point: its records are written before the first removal, and Podman does each removal.
"""

from __future__ import annotations

import json
import typing as t

from ..constants import SCHEMA
from ..host import lock, state
from ..host.agent import pause_file
from ..host.containers.podman_cli import ROOT, USERS_ITEMS, Podmans
from ..host.files import Host, Unreadable
from ..host.gc import other_gc
from ..model.gc import gc_records
from ..model.gc.gc_records import Clock, Records
from ..model.plan.plan import UNKNOWN, Change, change_to_dict
from ..model.profile.profile import Profile
from ..model.values.errors import CorralError, refusal
from ..model.values.records import NamedTuple
from ..pipeline import declared_profile, locked_run, profile_in_force
from . import container_pass, gc_outcome, idle_pass, image_pass
from .deadline import Stop
from .gc_outcome import Result

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import Item

LOCK = f"{state.RUN}/gc.lock"
# The most seconds of a pass. The time limit of the service is higher, so that the last Podman command can end.
PASS_SECONDS = 300.0
# The seconds by which a timer may elapse too early.
SLACK_SECONDS = 2.0
IMAGES, CONTAINERS, PASS = "images", "containers", "pass"
DRY_RUN, PAUSED = "asked for a dry run", "the node is paused"
LEFT = "the profile no longer declares gc: the pass ends, and keeps no records"
# The most seconds that a pass waits for the node's lock (see written()). A rollout needs the lock for less time.
LOCK_SECONDS = 120.0


class Request(NamedTuple):
    """Options of a pass. ``dry``: why the pass must not remove anything (empty: removals are allowed). ``due_only``: leave out parts that
    are not due. ``publish``: keep and publish the observation. ``despite_pause``: ignore a pause of the node.
    """

    dry: str = ""
    due_only: bool = False
    publish: bool = True
    despite_pause: bool = False


def collect(host: Host, declared: Profile, request: Request, stop: Stop) -> Result:
    """Collect garbage as the profile declares, and write the records before the first removal. For removals the caller holds LOCK."""
    now = host.now()
    gc = declared.gc
    # If a pass is dry for several reasons, the result names the first reason.
    result = Result(int(now), dry=dry_run_reason(host, declared, despite_pause=request.despite_pause) or request.dry)
    if gc is None:
        return result._replace(error="the profile declares no gc: nothing is collected")
    owner = other_gc.kubelet(host)
    if owner is not None:
        said = f"{owner} runs on this node and collects its runtime's images itself: leave gc out of the profile"
        return result._replace(error=said)
    last = read_status(host) if request.due_only else {}
    users = (ROOT, *gc.users)
    kept = records = kept_records(host, now)
    owners = [workload.owner for workload in declared.workloads]
    dry = bool(result.dry)
    podmans = Podmans(host, len(gc.users))
    # A dry run by hand and a pass whose records were lost always ask Podman.
    known = state.checked(host, state.GC_RECORDS) is not None and request.publish
    if request.publish:
        stop.wanted = lambda: unchanged(host, declared)
    try:
        idle = idle_pass.IdlePass(podmans, declared, users if known else (), now)
        if gc.containers is not None and is_due(last.get(CONTAINERS), gc.containers.interval, now, dry):
            observed_containers, dead = None, idle.containers()
            if dead is None:
                observed_containers = container_pass.observe(podmans, users, owners, records, now, stop)
            records = observed_containers.records if observed_containers else idle.with_uses(CONTAINERS, records)
            # Without a policy for images, Corral does not record the use of images.
            records = records if gc.images else records._replace(images={})
            if not save_records(host, declared, kept, records, request):
                return result._replace(error=LEFT)
            kept = records
            if observed_containers:
                dead = container_pass.run(observed_containers, gc.containers, now, stop, dry=dry)
                idle.keep_containers(observed_containers, gc.containers, dead)
            result = result._replace(containers=dead)
        if gc.images is not None and is_due(last.get(IMAGES), gc.images.interval, now, dry):
            observed, images = None, idle.images(gc.images)
            if images is None:
                observed = image_pass.observe(podmans, users, records, now, stop)
            records = observed.records if observed else idle.with_uses(IMAGES, records)
            if not save_records(host, declared, kept, records, request):
                return result._replace(error=LEFT)
            if observed:
                images = image_pass.run(host, gc.images, observed, now, stop, dry=dry)
                idle.keep_images(observed, gc.images, images)
            result = result._replace(images=images)
    except OSError as error:
        said = f"{error.filename or state.GC_RECORDS}: cannot be written ({error.strerror}): nothing is removed without a record"
        return result._replace(error=said)
    except (CorralError, Unreadable) as error:  # Earlier removals are still reported.
        return result._replace(error=one_line(error))
    finally:
        podmans.close()
    return result._replace(idle=idle.kept)


def kept_records(host: Host, now: float) -> Records:
    """The stored records, from the second copy if the first copy is damaged."""
    data = state.checked(host, state.GC_RECORDS)
    if data is None and state.there(host, state.GC_RECORDS):
        data = state.checked(host, f"{state.GC_RECORDS}.previous")
    return gc_records.read(data, Clock(now, host.uptime(), host.boot_id()))


def dry_run_reason(host: Host, declared: Profile, *, despite_pause: bool) -> str:
    """Why a pass must not remove anything now; an empty string if removals are allowed."""
    if declared.mode != "enforce":
        return f"mode {declared.mode}"
    return PAUSED if not despite_pause and pause_file.in_force(host) else ""


def is_due(part: object, interval: int, now: float, dry: bool) -> bool:
    """Whether a part is due: its interval is over, the clock was set back, or the last pass was dry and this pass is not, or vice versa."""
    before = gc_records.mapping(part)
    last = before.get("time")
    if last is None or not gc_records.is_time(last) or bool(before.get("dry")) != dry:
        return True
    return not 0 <= now - last < interval - SLACK_SECONDS


def now_declared(host: Host) -> t.Optional[Profile]:
    """The node's present profile; None if the profile does not declare gc. Raises CorralError for an invalid or lost profile: the profile
    that was applied last may lack the keep-lists of a newer profile.
    """
    declared, broken = profile_in_force.instead_of(host, declared_profile.read_declared(host), None)
    if declared is None and broken is not None:
        raise broken
    return declared if declared is not None and declared.gc is not None else None


def unchanged(host: Host, declared: Profile) -> bool:
    """Whether the present profile has the same gc and mode as at the beginning of the pass (``declared``); False for an invalid profile."""
    try:
        current = now_declared(host)
    except CorralError:
        return False
    return current is not None and (current.gc, current.mode) == (declared.gc, declared.mode)


def written(host: Host, declared: Profile, write: t.Callable[[Profile], None]) -> bool:
    """Write files of a pass while holding the node's lock. Returns False, without a write, if gc has left the profile.

    A rollout that drops gc removes the files of passes while holding the lock too, so no pass writes the files again. ``write`` gets the
    present profile, or ``declared`` if the present profile is invalid. Raises CorralError if another run does not release the lock in time.
    """

    def current() -> t.Optional[Profile]:
        try:
            return now_declared(host)
        except CorralError:
            return declared

    # A removal of the profile deletes the lock's folder: a pass with nothing to write must not make the lock again.
    if current() is None:
        return False
    own_lock = lock.Lock(host)
    if not own_lock.take(LOCK_SECONDS):
        raise refusal("another run of Corral holds it: the next pass goes on", path=lock.LOCK)
    try:
        still = current()
        if still is None:
            state.leave_nothing(host, lock.LOCK)  # The removal may have ended while this pass waited.
            return False
        write(still)
        return True
    finally:
        own_lock.release()


def save_records(host: Host, declared: Profile, before: Records, records: Records, request: Request) -> bool:
    """Write the records before the first removal. Returns False if gc has left the profile."""
    if not request.publish or records == before:
        return True
    users = declared.gc.users if declared.gc else ()
    # Containers may name images that no storage has, so the records of a user could grow with each pass.
    limited = gc_records.limited(records, dict.fromkeys(users, USERS_ITEMS // max(len(users), 1)))
    data = gc_records.to_data(limited)
    return written(host, declared, lambda dummy: state.write_checked(host, state.GC_RECORDS, data))


def read_status(host: Host) -> dict[str, t.Any]:
    """The results of the last passes; empty without a readable file."""
    status = state.read_json(host, state.GC_STATUS)
    return status if isinstance(status, dict) else {}


def publish(host: Host, declared: Profile, result: Result) -> None:
    """Write the result of a pass for users and exporters, and the drift of the pass for the tick."""
    status = read_status(host)
    totals = gc_records.mapping(status.get("totals"))
    status = {
        "schema": SCHEMA,
        "time": result.time,
        "dry": result.dry or None,
        "error": result.error or None,
        IMAGES: part_data(status.get(IMAGES), declared, IMAGES),
        CONTAINERS: part_data(status.get(CONTAINERS), declared, CONTAINERS),
    }
    if result.images is not None and declared.gc and declared.gc.images is not None:
        items = gc_outcome.images_drift(result.images, result.dry)
        status[IMAGES] = {**gc_outcome.images_data(result.images), **stamp(result), "items": as_data(items)}
    if result.containers is not None and declared.gc and declared.gc.containers is not None:
        items = gc_outcome.containers_drift(result.containers, result.dry)
        status[CONTAINERS] = {**gc_outcome.containers_data(result.containers), **stamp(result), "items": as_data(items)}
    done = () if result.dry else result.removed
    status["totals"] = {
        "images": totals.get("images", 0) + len(result.images.removed if result.images and done else ()),
        "containers": totals.get("containers", 0)
        + len(result.containers.removed if result.containers and done else ()),
        "bytes": totals.get("bytes", 0) + sum(item.bytes for item in done),
        "errors": totals.get("errors", 0) + len(result.errors),
    }
    lock.own_folder(host, state.RUN, 0o755)
    host.write_file(state.GC_STATUS, state.readable(state.GC_STATUS, json.dumps(status, sort_keys=True) + "\n"))
    failed = gc_outcome.change("gc", PASS, None, None, result.error, "", UNKNOWN) if result.error else None
    drift = [item for name in (IMAGES, CONTAINERS) for item in (status[name] or {}).get("items", ())]
    drift += as_data([failed]) if failed else []
    text = json.dumps(drift, sort_keys=True) + "\n"
    if state.read_text(host, state.GC_DRIFT) != text:
        host.write_file(state.GC_DRIFT, state.readable(state.GC_DRIFT, text), state.PRIVATE)
    write_metrics(host, status)
    idle_pass.write(host, result.idle)


def ended(host: Host, declared: Profile, result: Result, tell: t.Callable[[Host, Profile, Result], None]) -> Result:
    """The result of a pass, after ``tell`` has written the files of the pass. If a write fails, the result still has the removals."""
    try:
        if written(host, declared, lambda current: tell(host, current, result)):
            return result
        return result._replace(error=LEFT)
    except (CorralError, Unreadable) as error:
        said = one_line(error)
    except OSError as error:
        said = f"{error.filename or state.GC_STATUS}: {error.strerror or error}"
    return result._replace(error="; ".join(dict.fromkeys(filter(None, (result.error, said)))))


def publish_all(host: Host, declared: Profile, result: Result) -> None:
    """Write the result of a pass, and publish the node's status with the drift of the pass; the caller holds the node's lock."""
    publish(host, declared, result)
    locked_run.published(host, locked_run.NOTHING)


def one_line(error: Exception) -> str:
    """An error on one line, for the journal and the status."""
    return str(error).replace("\n", "; ")


def stamp(result: Result) -> dict[str, t.Any]:
    """When a pass ran, and why it was dry (None: the pass was not dry)."""
    return {"time": result.time, "dry": result.dry or None}


def part_data(last: object, declared: Profile, name: str) -> t.Optional[dict[str, t.Any]]:
    """The result of the last pass over a part; None for a part that the profile no longer declares."""
    wanted = declared.gc is not None and getattr(declared.gc, name) is not None
    return last if wanted and isinstance(last, dict) else None


def as_data(items: t.Iterable[Change]) -> list[Item]:
    """Drift items as JSON."""
    return [change_to_dict(item) for item in items]


def new_stop(host: Host) -> Stop:
    """The deadline of a pass that begins now."""
    return Stop(host.uptime, PASS_SECONDS)


def now(
    host: Host,
    declared: Profile,
    *,
    dry: bool,
    despite_pause: bool = False,
    wait: float = PASS_SECONDS,
    stop: t.Optional[Stop] = None,
) -> Result:
    """Run a pass at once, even if no part is due. Raises CorralError if another pass holds the lock for longer than ``wait`` seconds.

    A dry run writes nothing, not even a lock.
    """
    request = Request(DRY_RUN if dry else "", publish=not dry, despite_pause=despite_pause)
    stop = stop or new_stop(host)
    if dry:
        return collect(host, declared, request, stop)
    own_lock = lock.Lock(host, LOCK)
    if not own_lock.take(wait):
        raise refusal("another pass of garbage collection runs: try again", path=LOCK)
    try:
        return ended(host, declared, collect(host, declared, request, stop), publish_all)
    finally:
        state.leave_nothing(host, LOCK)
        own_lock.release()


def tick(host: Host, tell: t.Callable[[str, int], None], stop: t.Optional[Stop] = None) -> Result:
    """Run the timer's pass over the parts that are due. ``tell`` writes a line with its priority to the journal (sd-daemon(3))."""
    own_lock = lock.Lock(host, LOCK)
    idle = Result(int(host.now()))
    if not own_lock.take():
        return idle  # Another process collects; the next pass checks again.
    try:
        declared = now_declared(host)
        if declared is None:
            return idle
        before = read_status(host)
        # ``publish`` alone: the agent's timer publishes the node's status.
        result = ended(host, declared, collect(host, declared, Request(due_only=True), stop or new_stop(host)), publish)
    except (CorralError, Unreadable) as error:
        # Without a valid profile a pass must not remove anything. The tick reports the invalid profile.
        tell(f"not collected: {one_line(error)}", 3)
        return idle._replace(error=str(error))
    finally:
        state.leave_nothing(host, LOCK)
        own_lock.release()
    if not result.dry:
        for item in result.removed:
            gained = f", {item.bytes} bytes" if item.bytes else ""
            tell(f"removed {gc_outcome.name_of(item)} ({item.reason}{gained})", 5)
    if result.error == LEFT:
        return result  # Errors of storages that were not read are not logged: gc left the profile.
    known = {text for name in (IMAGES, CONTAINERS) for text in gc_records.mapping(before.get(name)).get("errors", ())}
    for said in result.errors:
        if said not in known and said != before.get("error"):
            tell(f"not collected: {said}", 4)
    return result


def write_metrics(host: Host, status: t.Mapping[str, t.Any]) -> None:
    """Write the metrics of the last passes if the folder for metrics exists."""
    from ..host.agent import metrics_file

    metrics_file.publish_gc(host, status)
