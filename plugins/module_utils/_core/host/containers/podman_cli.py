# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Podman of root and of users, through its API: only Podman can read its storage.

A pass of garbage collection starts one process for each user, as that user (podman_unit.py); this process starts Podman. Root opens no file
of a user and follows no path of a user's. No removal is forced: Podman refuses to remove an item that is in use by now.
"""

from __future__ import annotations

import re
import typing as t

from ...model.containers import podman_json
from ...model.containers.podman_json import ListedContainer, ListedImage, ListedPod
from ...model.gc import image_layers
from ...model.gc.gc_match import GcItem
from ...model.gc.image_layers import Layers
from ...model.values.errors import shown
from ...model.values.records import NamedTuple
from ..files import Host
from . import podman_storage
from .podman_unit import NOT_INSTALLED, Account, Answer, ServiceError, Worker

ROOT = "root"
# Each question reads a whole storage, perhaps on a slow disk or behind another Podman's lock.
ASK_SECONDS = 120.0
REMOVE_SECONDS = 180.0
SLACK_SECONDS = 10.0  # the time in which the process reports that Podman did not answer
# The questions whose answer is a list.
LISTS = ("images", "ps", "pod ps")
# The oldest version of the API, to which Podman 4.3 and 5.4 answer alike.
API, OLDEST = "/v4.0.0/libpod", 4
TOO_OLD = 125  # the exit code of a failing Podman command
# The seconds of a pass for all users' Podmans together, so that no user delays the passes of root and of other users for long.
USERS_SECONDS = 150.0
# The most images, containers and pods of all users together: each item has a record of 130 bytes (state.GC_RECORDS).
USERS_ITEMS = 16_000
# The most removals of a pass for all users together, including refused removals: the pass reports each removal (gc_outcome.py).
USERS_REMOVALS = 500


class PodmanError(Exception):
    """Podman gave no usable answer; the text names the user, the question and the reason."""


class Share(NamedTuple):
    """A user's share of a pass: seconds, the most items of a list (a longer list is not read), and removals."""

    seconds: float
    items: float
    removals: float


WHOLE, UNLIMITED = Share(USERS_SECONDS, USERS_ITEMS, USERS_REMOVALS), Share(*[float("inf")] * 3)


class Podmans:
    """The Podmans that a pass asks. Each Podman starts with its first question and ends with the pass."""

    def __init__(self, host: Host, users: int = 1) -> None:
        self.host = host
        users = max(users, 1)
        self.share = Share(USERS_SECONDS / users, USERS_ITEMS // users, max(USERS_REMOVALS // users, 1))
        self.asked: dict[str, Podman] = {}

    def of(self, user: str) -> Podman:
        """A user's Podman. Raises PodmanError."""
        if user not in self.asked:
            self.asked[user] = Podman(self.host, user, self.share)
        return self.asked[user]

    def close(self) -> None:
        """End all Podmans at the same time, so that waiting takes no longer than the slowest of them."""
        for podman in self.asked.values():
            podman.hang_up()
        for podman in self.asked.values():
            podman.close()


class Podman:
    """The Podman of ``user``: "root", or an account with its own storage, which has a ``share`` of a pass."""

    # Starts the process that asks Podman.
    serve: t.Callable[[Host, Account], Worker] = staticmethod(Worker)

    def __init__(self, host: Host, user: str = ROOT, share: Share = WHOLE) -> None:
        self.host = host
        self.user = user
        self.account = ROOTS if user == ROOT else account_of(host, user)
        self.left, self.most, self.removals = UNLIMITED if user == ROOT else share
        self.worker: t.Optional[Worker] = None
        self.device: t.Optional[str] = None  # the file system that holds a user's storage
        self.too_old: t.Optional[str] = None  # why this Podman cannot answer; empty for a new enough release

    def hang_up(self) -> None:
        """Tell the user's process to end; close() waits for the end."""
        if self.worker is not None:
            self.worker.hang_up()

    def close(self) -> None:
        """End the user's process and its Podman."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()

    def ask(self, request: t.Mapping[str, t.Any], timeout: float = ASK_SECONDS) -> Answer:
        """The answer of the user's process to a request. After a ServiceError the next request starts a new process."""
        if self.left <= 0:
            raise ServiceError(125, "its share of the time of a pass is over")
        begun = self.host.uptime()
        timeout = min(timeout, self.left)
        try:
            if self.worker is None:
                self.worker = self.serve(self.host, self.account)
            return self.worker.ask({**request, "timeout": timeout}, timeout + SLACK_SECONDS, self.left)
        except ServiceError:
            self.close()
            raise
        finally:
            self.left -= self.host.uptime() - begun

    def request(self, method: str, path: str, timeout: float = ASK_SECONDS, **how: t.Any) -> Answer:
        """Request a path of the API. Raises ServiceError."""
        if self.too_old:
            raise ServiceError(TOO_OLD, self.too_old)
        try:
            return self.ask({"method": method, "path": f"{API}{path}", "pick": (), **how}, timeout)
        except ServiceError as error:
            if error.code != NOT_INSTALLED and self.too_old is None:
                # An old Podman does not use the socket that it gets, so no answer ever comes.
                self.too_old = self.why_too_old()
            if self.too_old:
                raise ServiceError(TOO_OLD, self.too_old) from None
            raise

    def why_too_old(self) -> str:
        """The message for a Podman without this API; an empty string for a newer Podman and an unknown release."""
        try:
            said = str(self.ask({"version": True}).rows)
        except ServiceError:
            return ""
        match = re.search(r"version (([0-9]{1,6})\.[0-9A-Za-z.+~-]{1,40})", said)
        if match is None or int(match[2]) >= OLDEST:
            return ""
        return f"Podman {match[1]} has no API of version {OLDEST}: garbage collection needs Podman {OLDEST}.0 or newer"

    def rows(self, name: str, path: str, keys: t.Sequence[str]) -> list[dict[str, t.Any]]:
        """The items of an answer. ``name`` is the equivalent podman command, for messages. Raises PodmanError."""
        for last in (False, True):  # The first attempt can fail while another Podman removes a listed item.
            try:
                answer = self.request("GET", path, pick=keys, list=name in LISTS)
            except ServiceError as error:
                if last or self.too_old or error.code in (124, NOT_INSTALLED):
                    raise PodmanError(self.failed(name, error)) from None
                continue
            if 200 <= answer.status < 300:
                if len(answer.rows) > self.most:
                    raise PodmanError(f"{self.named(name)}: lists more than {self.most} items: not looked at")
                return podman_json.named_rows(answer.rows, keys)
        raise PodmanError(self.said(name, answer.said))

    def read(self, name: str, of: t.Callable[[t.Any], t.Any], path: str, keys: t.Sequence[str]) -> t.Any:
        """The items of an answer as ``of`` converts them. Raises PodmanError, also for an unexpected form."""
        try:
            return of(self.rows(name, path, keys))
        except ValueError as error:
            raise PodmanError(f"{self.named(name)}: its answer is not as expected: {error}") from None

    def images(self) -> list[ListedImage]:
        """All images, with intermediate images."""
        path = "/images/json?all=true"
        return t.cast("list[ListedImage]", self.read("images", podman_json.images, path, podman_json.IMAGE))

    def containers(self) -> list[ListedContainer]:
        """All containers, with the containers of builds."""
        booted = self.host.now() - self.host.uptime()
        path = "/containers/json?all=true&external=true"
        listed = self.read("ps", lambda data: podman_json.containers(data, booted), path, podman_json.CONTAINER)
        return t.cast("list[ListedContainer]", listed)

    def pods(self) -> list[ListedPod]:
        """All pods."""
        return t.cast("list[ListedPod]", self.read("pod ps", podman_json.pods, "/pods/json", podman_json.POD))

    def recent_uses(self, since: float) -> t.Optional[dict[str, float]]:
        """When containers last used each image, by image name, from the events since ``since``.

        The events include containers that are gone. None if Podman keeps no events, or cannot read them now.
        """
        filters = quoted('{"type":["container"],"event":["create","died"]}')
        try:
            answer = self.request("GET", f"/events?stream=false&since={int(since)}&filters={filters}", events=True)
        except ServiceError:
            return None
        return podman_json.event_uses(answer.rows) if 200 <= answer.status < 300 else None

    def store(self, images: t.Sequence[ListedImage]) -> tuple[str, str]:
        """The path of the images' storage, and the name of its driver. Raises PodmanError.

        Usually the data of the first image has both values (GraphDriver). Else ``podman info`` is asked. This command takes longer than the
        rest of a quiet pass, since it asks the package manager about all programs of Podman.
        """
        for image in [image for image in images if not image.read_only and image.size][:1]:
            try:
                keys = ("GraphDriver",)
                answer = self.request("GET", f"/images/{image.id}/json", pick=keys)
                rows = podman_json.named_rows(answer.rows, keys)
                place = podman_json.store_of_image(rows[0]) if 200 <= answer.status < 300 and rows else None
            except ServiceError as error:
                raise PodmanError(self.failed("image inspect", error)) from None
            except ValueError:
                place = None
            if place is not None:
                return place
        described = self.read("info", lambda rows: podman_json.store(rows[0] if rows else None), "/info", ("store",))
        return t.cast("tuple[str, str]", described)

    def space(self, root: str) -> t.Optional[tuple[int, int, int]]:
        """The file system of a storage: its device, size and free bytes; None if these cannot be read.

        A user's process tells only the device. Root asks the kernel how full the device is, and so uses no path of the user's.
        """
        if self.user == ROOT:
            return self.host.space(root)
        if self.device is None:  # A user's process is asked only once.
            try:
                rows = self.ask({"device": root}).rows
            except ServiceError:
                return None
            self.device = rows[0][0] if rows and rows[0] and isinstance(rows[0][0], str) else ""
        return self.host.device_space(self.device)

    def stamps(self, root: str, driver: str) -> t.Optional[podman_storage.Stamps]:
        """The stamps of the storage's files (podman_storage.py); None if the stamps cannot be read."""
        paths = podman_storage.paths(root, driver)
        if self.user == ROOT:
            return podman_storage.stamps(paths, [self.host.stamp(path) or [] for path in paths])
        try:
            return podman_storage.stamps(paths, self.ask({"stat": paths}).rows)
        except ServiceError:
            return None

    def layers(self, root: str, driver: str) -> t.Optional[Layers]:
        """The layers that images share, from the storage's lists; None if the lists cannot be read."""
        try:
            lists = [
                podman_json.named_rows(
                    self.ask({"file": f"{root}/{driver}-{name}.json", "pick": keys, "list": True}).rows, keys
                )
                for name, keys in (("images/images", image_layers.IMAGE), ("layers/layers", image_layers.LAYER))
            ]
            return image_layers.read(*lists)
        except (ServiceError, ValueError):
            return None

    def remove_image(self, image: ListedImage) -> str:
        """Remove an image, its names first. Returns an empty string, or why the image stays; a refused image gets its names back."""
        taken: list[str] = []
        # Without force Podman removes only an image with one name. Podman does not untag a name with a digest.
        for name in sorted(image.names, key=lambda name: "@" in name)[:-1]:
            if self.name(image, "untag", name):
                break
            taken.append(name)
        # Without noprune an untagged parent would be removed too, whatever its age. Podman 4.3 has noprune only in this path.
        said, late = self.act("rmi", "DELETE", f"/images/remove?images={image.id}&noprune=true")
        if said and not late:
            for name in taken:
                self.name(image, "tag", name)
        return said

    def name(self, image: ListedImage, verb: str, name: str) -> str:
        """Give an image a name (``verb`` "tag") or take a name away ("untag"). Returns the error; an empty string without an error."""
        repository, dummy, tag = name.rpartition(":")
        path = f"/images/{image.id}/{verb}?repo={quoted(repository)}&tag={quoted(tag)}"
        return self.act(verb, "POST", path, ASK_SECONDS)[0]

    def remove_item(self, item: GcItem, *, volumes: bool) -> str:
        """Remove a dead container or pod. Returns an empty string, or why the item stays."""
        # Containers go before their pod: the removal of a pod would always remove the anonymous volumes of its containers.
        for container in item.members if item.pod else item.containers:
            path = f"/containers/{container.id}?force=false&volumes={'true' if volumes else 'false'}"  # docker: v=
            said, dummy = self.act("rm", "DELETE", path)
            if said:
                return said
        return self.act("pod rm", "DELETE", f"/pods/{item.id}?force=false")[0] if item.pod else ""

    def act(self, name: str, method: str, path: str, timeout: float = REMOVE_SECONDS) -> tuple[str, bool]:
        """Make a request that changes something. Returns the error (empty for success), and whether Podman did not answer in time."""
        try:
            answer = self.request(method, path, timeout, pick=podman_json.REFUSAL)
            said = answer.said or podman_json.refusal(podman_json.named_rows(answer.rows, podman_json.REFUSAL))
        except ServiceError as error:
            return self.failed(name, error), error.code == 124
        except ValueError as error:
            said = str(error)
        if not said and not 200 <= answer.status < 300:
            said = f"HTTP {answer.status}"
        return self.said(name, said) if said else "", False

    def named(self, name: str) -> str:
        """A podman command for messages, with the user's name."""
        return f"podman {name}" + ("" if self.user == ROOT else f" of {self.user}")

    def failed(self, name: str, error: ServiceError) -> str:
        """Why there is no answer, on one line."""
        if error.code == NOT_INSTALLED:
            return f"{shown(str(error), limit=80)} is not installed on this node"
        if error.code == 124:
            return f"{self.named(name)}: no answer in time (does another Podman hold its storage?)"
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        starts = [line for line in lines if line.startswith("Error")] or lines[-1:]
        return self.said(name, starts[-1].partition("Error: ")[2] or starts[-1] if starts else "it ended")

    def said(self, name: str, text: str) -> str:
        """The text of a failed request, on one line."""
        lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it did not say why"]
        if lines[0].endswith("occurred:"):
            lines[0] = (lines[1:] or lines)[0].lstrip("* ")
        return f"{self.named(name)}: {shown(lines[0], limit=300)}"


def quoted(text: str) -> str:
    """A text as part of a path's query (as urllib.parse.quote, whose import takes longer)."""
    return "".join(
        chr(byte) if re.fullmatch("[A-Za-z0-9._~/-]", chr(byte)) else f"%{byte:02X}"
        for byte in text.encode(errors="surrogatepass")
    )


PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ROOTS = Account({"Slice": "system.slice"}, {"PATH": PATH, "HOME": "/root", "LC_ALL": "C"})


def account_of(host: Host, user: str) -> Account:
    """The account of a user's process, with an environment that does not come from the user. Raises PodmanError without such a user."""
    answer = host.run("getent", "passwd", user)
    fields = answer.out.strip().split(":")
    if answer.code or len(fields) < 7 or not fields[2].isdecimal():
        # getent(1): 2 is "not found".
        why = (
            "this node has no such user"
            if answer.code == 2
            else f"who that is cannot be asked: {shown(answer.err, limit=80)}"
        )
        raise PodmanError(f"podman of {user}: {why}")
    # The user's containers.conf could send requests to another machine. The place of the storage is set in another file.
    variables = {"HOME": fields[5], "XDG_RUNTIME_DIR": f"/run/user/{fields[2]}", "CONTAINERS_CONF": "/dev/null"}
    # Podman needs the runtime folder that its storage was used with; systemd 247 removes this folder as soon as no unit needs it.
    folder = f"user-runtime-dir@{fields[2]}.service"
    # The slice limits the process together with the user's other processes. NoNewPrivileges= is not possible: newuidmap(1) gains rights.
    # Without Delegate= Podman would leave the unit for a scope of the user's manager, and that scope has no limits.
    unit = {"Requires": folder, "After": folder, "Slice": f"user-{fields[2]}.slice", "Delegate": "yes"}
    return Account({"User": fields[2], **unit}, {"PATH": PATH, "LC_ALL": "C", **variables})
